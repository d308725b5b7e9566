#!/usr/bin/env python3
"""Do the rule tests bind? Changes one thing of one rule at a time and looks whether a test fails.

usage: mutate_rules.py [--sample N] [--seed S] [--rules FILE] [--only TEXT] [--promtool PATH] [--processes N] [--remember] [--list]

Changed are: each number and duration (twice, half; 0 and 1 into each other), each comparison (turned round), + - * /, and/or/unless, sum, min
and max, each label value in a selector, `for` and `keep_firing_for` (twice, half or none), each alert's labels.

A mutant is tried on cases that have to do with alerts downstream of its rule, with the rules cut down to what these alerts need and
expectations to these alerts. Nothing else can change, so this finds what the whole tests would, in a fraction of the time. Cases that
killed other mutants of the rule come first (alerts/mutation/killers.json, which --remember writes; it decides the order only).

alerts/mutation/equivalent.json names the mutants that no test can kill because they behave the same, each with its reason. The
score is killed / (all - equivalent). Exit code 1 if it is below --least (95 % unless told otherwise), if a mutant named equivalent is
killed after all or does not exist, and, of a whole run, if a survivor is not explained. docs/alert-quality.md has the last numbers."""

import argparse
import collections
import concurrent.futures
import json
import os
import pathlib
import random
import re
import sys
import tempfile
import threading
import time

import rulelib
from rule_cases import CASES
from rule_graph import RuleGraph, words
from rule_world import as_yaml

MUTATION = rulelib.ALERTS / "mutation"
FLIP = {">": "<=", "<": ">=", ">=": "<", "<=": ">", "==": "!=", "!=": "=="}
SET = {"and": "unless", "unless": "and", "or": "and"}
AGGREGATE = {"max": "min", "min": "max", "sum": "max"}
ARITHMETIC = {"+": "-", "-": "+", "*": "/", "/": "*"}
TOKEN = re.compile(
    r"""(?P<skip>\b(?:on|by|without|group_left|ignoring)\s*\([^)]*\)|[\w:]*redis_lock\w*(?::\w+)*|cordum_\w+|job:\w+:\w+|\w+_over_time|histogram_quantile)
      |(?P<label>"[^"]*")|(?P<duration>\b(?:\d+[smhd])+\b)|(?P<number>\b\d+(?:\.\d+)?\b)
      |(?P<compare>>=|<=|==|(?<![=!])!=(?!~)|>|<)|(?P<arithmetic>(?<= )[-+*/](?=[ ]))|(?P<word>\b(?:and|or|unless|max|min|sum)\b)""", re.X)


def scaled(text, factor):
    seconds = sum(int(n) * {"s": 1, "m": 60, "h": 3600, "d": 86400}[u] for n, u in re.findall(r"(\d+)([smhd])", text))
    return f"{int(seconds * factor)}s"


def mutations(rule):
    """(what, changed rule)"""
    expr, in_selector = rule["expr"], [(m.start(), m.end()) for m in re.finditer(r"\{[^}]*\}", rule["expr"])]
    seen = collections.Counter()
    for match in TOKEN.finditer(expr):
        text, kind = match.group(), match.lastgroup
        inside = any(a < match.start() < b for a, b in in_selector)
        new = []
        if kind == "label" and inside:
            new = ['"mutant"']
        elif inside or kind == "skip":
            continue
        elif kind == "duration":
            new = [scaled(text, 2), scaled(text, 0.5)]
        elif kind == "number":
            new = ["1"] if text == "0" else ["0", "2"] if text == "1" else [f"{float(text) * 2:g}", f"{float(text) / 2:g}"]
        elif kind == "compare":
            new = [FLIP[text]]
        elif kind == "arithmetic":
            new = [ARITHMETIC[text]]
        elif kind == "word":
            after = expr[match.end():].lstrip()
            new = [SET[text]] if text in SET else [AGGREGATE[text]] if after.startswith(("by", "(", "without")) else []
        seen[text] += 1
        for replacement in new:
            changed = dict(rule, expr=expr[:match.start()] + replacement + expr[match.end():])
            yield f"{text} ({seen[text]}) -> {replacement}", changed
    for key in ("for", "keep_firing_for"):
        if key in rule:
            yield f"{key}: {rule[key]} -> twice", dict(rule, **{key: scaled(rule[key], 2)})
            yield f"{key}: {rule[key]} -> half", dict(rule, **{key: scaled(rule[key], 0.5)})
            yield f"{key}: {rule[key]} -> none", {k: v for k, v in rule.items() if k != key}
    if "alert" in rule:
        for label, value in rule["labels"].items():
            yield f"label {label}: {value} -> mutant", dict(rule, labels={**rule["labels"], label: "mutant"})


def full_name(rule):
    """Rules of the same name are told apart by what they are labeled with."""
    if "record" in rule:
        return rule["record"]
    return "/".join([rule["alert"], rule["labels"]["severity"]] + [v for k, v in rule["labels"].items() if k == "missing"])


class Mutants:
    def __init__(self, rule_file, promtool):
        self.groups, self.promtool = rulelib.load_groups(rulelib.ALERTS / rule_file), promtool
        self.graph = RuleGraph(self.groups)
        self.cases = [case for case in CASES if case.rules == rule_file]
        self.all = [
            (f"{full_name(rule)}: {what}", g, r, changed)
            for g, group in enumerate(self.groups) for r, rule in enumerate(group["rules"]) for what, changed in mutations(rule)
        ]
        assert len({mutant[0] for mutant in self.all}) == len(self.all), "two mutants of one name"
        self.lock, self.killers = threading.Lock(), collections.defaultdict(collections.Counter)

    def read_killers(self):
        path = MUTATION / "killers.json"
        for rule, names in (json.loads(path.read_text()) if path.exists() else {}).items():
            self.killers[rule].update({name: 1 + len(names) - i for i, name in enumerate(names)})

    def write_killers(self):
        known = {case_name(case) for case in self.cases}
        path = MUTATION / "killers.json"
        rest = json.loads(path.read_text()) if path.exists() else {}
        mine = {full_name(rule) for group in self.groups for rule in group["rules"]}
        found = {rule: [name for name, _ in counts.most_common(8) if name in known] for rule, counts in self.killers.items() if rule in mine}
        path.write_text(json.dumps({**{k: v for k, v in rest.items() if k not in mine}, **found}, indent=1, sort_keys=True) + "\n")

    def stages(self, rule_name, alerts):
        """Cases in the order in which they are tried, as lists that are run at once: likely killers, then the short ones."""
        about = [case for case in self.cases if any(self.graph.concerns(case, alert) for alert in alerts)]
        with self.lock:
            likely = [name for name, _ in self.killers[rule_name].most_common(6)]
        first = [case for case in about if case_name(case) in likely]
        rest = [case for case in about if case_name(case) not in likely]
        # Quiet cases kill less often than those in which the alert fires.
        rest.sort(key=lambda case: (case.every != first_every(rest), case.last > 60, not case.alerts & alerts, case.last))
        yield from by_every(first)
        size = 8
        while rest:
            yield from by_every(rest[:size])
            rest, size = rest[size:], size * 2

    def run(self, mutant):
        """True if killed"""
        _, g, r, changed = mutant
        name = full_name(self.groups[g]["rules"][r])
        downstream = self.graph.downstream[rulelib.name_of(changed)]
        for cases in self.stages(name, downstream):
            alerts = {alert for alert in downstream if any(self.graph.concerns(case, alert) for case in cases)}
            passed, output = self.test(cases, alerts, {(g, r): changed})
            if not passed:
                with self.lock:
                    self.killers[name].update(case_name(case) for case in failed_cases(cases, output))
                return True
        return False

    def control(self, alert):
        """None, or what fails although nothing was changed: then kills would mean nothing."""
        for cases in by_every([case for case in self.cases if self.graph.concerns(case, alert)]):
            passed, output = self.test(cases, {alert}, {})
            if not passed:
                return output
        return None

    def test(self, cases, alerts, changes):
        """(passed, output) of these cases and alerts with these rules changed: {(group, rule): changed}."""
        needed = set().union(*(self.graph.upstream[alert] for alert in alerts))
        groups = [
            dict(group, rules=[changes.get((g, r), rule) for r, rule in enumerate(group["rules"]) if rulelib.name_of(rule) in needed])
            for g, group in enumerate(self.groups)
        ]
        groups = [group for group in groups if group["rules"]]
        metrics = set().union(*(words(rule) for group in groups for rule in group["rules"]))
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            (folder / "rules.yml").write_text(rulelib.rules_as_yaml(groups))
            (folder / "test.yml").write_text(as_yaml(cases, "rules.yml", [group["name"] for group in groups], only=alerts, metrics=metrics))
            return rulelib.run_promtool(self.promtool, "test.yml", cwd=folder)


def case_name(case):
    return f"{case.file}: {case.name}"


def first_every(cases):
    return min((case.every for case in cases), default=None)


def by_every(cases):
    for every in sorted({case.every for case in cases}):
        yield [case for case in cases if case.every == every]


def failed_cases(cases, output):
    """By the number that each case has as a cluster, or by its name if it is alone. At most three: the first are enough to find it again."""
    numbers = list(dict.fromkeys(int(n) for n in re.findall(r'expr: "ALERTS[^\n]*?cluster=~\\"(\d+)', output)))
    named = [case for case in cases if f"name: {case.name}," in output]
    return ([cases[n] for n in numbers if n < len(cases)] + named)[:3]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sample", type=int, help="that many, drawn with --seed")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rules", default="redis_lock.rules.yml")
    parser.add_argument("--only", help="mutants whose name contains this")
    parser.add_argument("--promtool", default="promtool")
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    parser.add_argument("--remember", action="store_true", help="write killers.json")
    parser.add_argument("--list", action="store_true", help="only list the mutants")
    parser.add_argument("--least", type=float, default=0.95)
    options = parser.parse_args()
    mutants = Mutants(options.rules, options.promtool)
    mutants.read_killers()
    names = {mutant[0] for mutant in mutants.all}
    equivalent = json.loads((MUTATION / "equivalent.json").read_text())[options.rules]
    unknown = [name for name in equivalent if name not in names]
    chosen = [mutant for mutant in mutants.all if not options.only or options.only in mutant[0]]
    whole = len(chosen) == len(mutants.all) and not options.sample
    if options.sample:
        random.Random(options.seed).shuffle(chosen)
        chosen = chosen[:options.sample]
    if options.list:
        print(*(mutant[0] for mutant in chosen), sep="\n")
        return

    begun, killed_count, explained, unexplained, wrong = time.monotonic(), 0, [], [], []
    with concurrent.futures.ThreadPoolExecutor(options.processes) as pool:
        if whole:
            for alert, output in zip(mutants.graph.alerts, pool.map(mutants.control, mutants.graph.alerts)):
                if output:
                    sys.exit(f"{alert}: its cases fail without any change\n{output}")
        for (name, *_), killed in zip(chosen, pool.map(mutants.run, chosen)):
            if killed:
                killed_count += 1
                if name in equivalent:
                    wrong.append(name)
            elif name in equivalent:
                explained.append(name)
            else:
                unexplained.append(name)
                print("survived:", name, flush=True)
    counted = len(chosen) - len(explained)
    score = killed_count / max(counted, 1)
    print(f"{options.rules}: {len(chosen)} of {len(mutants.all)} mutants tried: {killed_count} killed, {len(unexplained)} survived, "
          f"{len(explained)} equivalent: {score:.1%} of {counted}, {time.monotonic() - begun:.0f} s")
    if options.remember:
        mutants.write_killers()
    problems = [f"equivalent.json names a mutant that does not exist: {name}" for name in unknown]
    problems += [f"equivalent.json names a mutant that was killed: {name}" for name in wrong]
    if score < options.least:
        problems.append(f"fewer than {options.least:.0%} were killed")
    if whole and unexplained:
        problems.append("survivors that equivalent.json does not explain, see above: add a case, simplify the rule, or give the reason")
    if problems:
        sys.exit("\n".join(problems))


if __name__ == "__main__":
    main()
