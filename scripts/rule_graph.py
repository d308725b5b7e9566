"""Dependencies in a rule file: the recording rules and metrics that an alert reads, and the alerts
that a rule can change."""

import collections
import re

import rulelib


def words(rule, texts=False):
    """Returns the words of the expression and, with `texts`, of the annotations, which also contain
    queries."""
    return set(re.findall(r"[a-zA-Z_:][\w:]*", " ".join([rule["expr"], *(rule.get("annotations", {}).values() if texts else ())])))


class RuleGraph:
    def __init__(self, groups):
        rules = [rule for group in groups for rule in group["rules"]]
        recorded = {rule["record"] for rule in rules if "record" in rule}
        uses = collections.defaultdict(set)
        for rule in rules:
            uses[rulelib.name_of(rule)] |= words(rule)
        self.alerts = sorted({rule["alert"] for rule in rules if "alert" in rule})
        # By name. Each rule is part of its own upstream.
        self.upstream = {name: closure(name, lambda n: uses[n] & recorded) for name in uses}
        self.downstream = {name: {alert for alert in self.alerts if name in self.upstream[alert]} for name in uses}
        # For each recorded series: the alerts whose annotations read it but whose expressions do
        # not.
        told = {alert: set().union(*(self.upstream[n] for rule in rules if rulelib.name_of(rule) == alert for n in words(rule, texts=True) & recorded)) for alert in self.alerts}
        self.told = {name: {alert for alert in self.alerts if name in told[alert] - self.upstream[alert]} for name in uses}
        self.metrics = {name: set().union(*(uses[n] for n in self.upstream[name])) for name in uses}

    def concerns(self, case, alert):
        """Whether the alert fires in the case, or reads a metric that the case changes."""
        return alert in case.alerts or bool(case.world.special & self.metrics[alert])


def closure(name, following):
    found, queue = {name}, [name]
    while queue:
        new = following(queue.pop()) - found
        found |= new
        queue += new
    return found
