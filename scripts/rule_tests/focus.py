"""Chooses the rules that each case is tested with: a dozen for most cases instead of all of them.

A case makes a statement about every alert: it fires at these moments, or it stays silent. A case
concerns an alert if the alert fires in it, or if the alert reads a metric that the case changes.
These statements are tested for each case.

All other alerts must stay silent. They read only what the case leaves as healthy exporters show it:
their background. Many cases have the same background for an alert, so one of them is its witness
and tests the statement for all. A witness

* gives the alert exactly the same series, for at least as long,
* evaluates the rules at the same interval (or every 5 minutes if the background lasts for more than
  400 minutes), and
* checks that the alert never fires, not even between the moments that the cases check.

A rule is always loaded together with every recording rule that it depends on, and with all series
that these rules read. So it behaves as in the complete rule file. `scripts/test_rules.sh --full`
also runs every case against the complete file."""

import collections
import copy
import itertools
import re

import rulelib
from rule_graph import RuleGraph, words

from .promtool_file import sample_count, world_name

LONG, LONG_EVERY = 400, 5  # minutes

# Rough costs in promtool, in microseconds: of a rule at each evaluation, of each series that it
# reads, and of the samples of a range. A process takes some time to start. These numbers decide
# only what is tested together, never what is tested. Costs are integers: their sums do not depend
# on the order, so the files are the same each time.
RULE, SELECTOR, SERIES, SAMPLE, PROCESS = 20, 12, 3.4, 0.03, 100_000
LARGE = 10_000_000


class Focus:
    """Works on all cases of one rule file.

    `rules`: the names of the rules that each case needs. `silent`: the alerts for which each case
    is the witness. Both also contain the copies of cases that are only witnesses."""

    def __init__(self, groups, cases):
        self.graph, self.cases = RuleGraph(groups), cases
        self.costs = Costs(groups)
        self.concerned = {case: {alert for alert in self.graph.alerts if self.graph.concerns(case, alert)} for case in cases}
        self.silent = {case: set() for case in cases}
        self.rules = {case: self.needed_rules(case) for case in cases}
        coarse = {}
        for alert in self.graph.alerts:
            for candidates in self.backgrounds(alert):
                witness = min(candidates, key=lambda case: self.costs.of_case(case, self.graph.upstream[alert] - self.rules[case]))
                if witness.last > LONG and witness.every < LONG_EVERY:
                    witness = coarse.setdefault(witness, coarse_copy(witness))
                    self.silent.setdefault(witness, set())
                    self.rules.setdefault(witness, set())
                self.silent[witness].add(alert)
                self.rules[witness] |= self.graph.upstream[alert]
        self.cases = [*cases, *(case for case in coarse.values() if self.silent[case])]

    def needed_rules(self, case):
        """Returns the names of the rules that the concerned alerts need, and of those that the case
        names."""
        named = {name for expression in case.holds for name in re.findall(r"\b[a-z_]+:[\w:]+", expression)}
        return set().union(*(self.graph.upstream[name] for name in self.concerned[case] | named))

    def backgrounds(self, alert):
        """Returns, for each different background of this alert, the cases that show it for the
        longest time."""
        metrics, found = self.graph.metrics[alert], {}
        cases = [case for case in self.cases if alert not in self.concerned[case]]
        for case in sorted(cases, key=lambda case: -sample_count(case)):
            count = sample_count(case)
            series = {key: values[:count] for key, values in case.world.series.items() if key.split("{")[0] in metrics}
            of_same_names = found.setdefault((case.every, case.last > LONG, case.world.step, frozenset(series)), [])
            for longest, known, candidates in of_same_names:
                if all(known[key][:count] == values for key, values in series.items()):
                    if count == longest:
                        candidates.append(case)
                    break
            else:
                of_same_names.append((count, series, [case]))
        return [candidates for of_same_names in found.values() for _, _, candidates in of_same_names]

    def batches(self, cases):
        """Returns the cases that are tested together. First considers each world alone, because
        only cases of one world share evaluations."""
        worlds = {}
        for case in cases:
            worlds.setdefault(world_name(case), {}).setdefault(frozenset(self.rules[case]), []).append(case)
        return joined(batch for by_rules in worlds.values() for batch in joined(Batch(self.costs, *item) for item in by_rules.items()))


def joined(batches):
    """Merges two batches as long as that is cheaper than testing them separately and no batch gets
    too large."""
    batches, gains = dict(enumerate(batches)), {}
    while True:
        for first, second in itertools.combinations(batches, 2):
            if (first, second) not in gains:
                together = batches[first].cost_with(batches[second])
                gains[first, second] = batches[first].cost + batches[second].cost - together if together < LARGE else 0
        pair = max(gains, key=gains.get, default=None)
        if pair is None or gains[pair] <= 0:
            return list(batches.values())
        gains = {key: gain for key, gain in gains.items() if not set(key) & set(pair)}
        first, second = (batches.pop(number) for number in pair)
        batches[max([*batches, *pair]) + 1] = Batch(first.costs, first.rules | second.rules, first.cases + second.cases)


class Batch:
    """Cases that are tested together, the rules that they need, and an estimate of the microseconds
    that this takes."""

    def __init__(self, costs, rules, cases):
        self.costs, self.rules, self.cases = costs, rules, cases
        self.evaluations = collections.Counter()
        for case in cases:
            world = world_name(case)
            self.evaluations[world] = max(self.evaluations[world], evaluations(case))
        # For each rule, its cost with the series of these cases.
        self.series = [sum(costs) for costs in zip(*(costs.vector(case) for case in cases))]
        self.cost = self.total(rules, self.evaluations, self.series)

    def cost_with(self, other):
        return self.total(self.rules | other.rules, self.evaluations | other.evaluations, [a + b for a, b in zip(self.series, other.series)])

    def total(self, rules, evaluations, series):
        number = sum(evaluations.values())
        return PROCESS + sum(self.costs.fixed[name] * number + series[self.costs.number[name]] for name in rules)


class Costs:
    def __init__(self, groups):
        self.fixed, self.selectors, self.vectors = collections.Counter(), collections.defaultdict(list), {}
        for rule in (rule for group in groups for rule in group["rules"]):
            name, windows = rulelib.name_of(rule), [seconds(window) for window in re.findall(r"\[(\w+)\]", rule["expr"])]
            selected = [word for word in words(rule) if ":" in word or word == "up" or re.match("redis_lock_|cordum_", word)]
            self.fixed[name] += RULE + SELECTOR * len(selected)
            self.selectors[name] += [(word, max(windows, default=0)) for word in selected]
        self.number = {name: number for number, name in enumerate(self.fixed)}

    def vector(self, case):
        """Returns, for each rule, the cost of its series in this case."""
        if case not in self.vectors:
            count = collections.Counter(key.split("{")[0] for key in case.world.series)
            recorded = count["redis_lock_namespace_info"] or 1
            of_series = lambda window: SERIES + SAMPLE * min(window, case.last * 30) / (case.world.step * 60)
            self.vectors[case] = [
                sum(round(evaluations(case) * (recorded if ":" in word else count[word]) * of_series(window)) for word, window in self.selectors[name])
                for name in self.fixed
            ]
        return self.vectors[case]

    def of_case(self, case, names):
        vector = self.vector(case)
        return sum(vector[self.number[name]] for name in names)


def coarse_copy(case):
    """Returns a copy of a long case that evaluates the rules less often and checks only for
    silence."""
    coarse = copy.copy(case)
    coarse.name, coarse.every, coarse.firing, coarse.holds = f"{case.name} (background)", LONG_EVERY, {}, ()
    return coarse


def evaluations(case):
    return round(case.last / case.every)


def seconds(window):
    return sum(int(number) * {"s": 1, "m": 60, "h": 3600, "d": 86400}[unit] for number, unit in re.findall(r"(\d+)([smhd])", window))
