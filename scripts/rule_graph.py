"""Who needs whom in a rule file: which recording rules and metrics an alert is made of, and which alerts a rule can change."""

import collections
import re

import rulelib


def words(rule, texts=False):
    """Of its expression, and of its annotations if asked for: these have queries, too."""
    return set(re.findall(r"[a-zA-Z_:][\w:]*", " ".join([rule["expr"], *(rule.get("annotations", {}).values() if texts else ())])))


class RuleGraph:
    def __init__(self, groups):
        rules = [rule for group in groups for rule in group["rules"]]
        recorded = {rule["record"] for rule in rules if "record" in rule}
        uses = collections.defaultdict(set)
        for rule in rules:
            uses[rulelib.name_of(rule)] |= words(rule)
        self.alerts = sorted({rule["alert"] for rule in rules if "alert" in rule})
        # By name, each with itself.
        self.upstream = {name: closure(name, lambda n: uses[n] & recorded) for name in uses}
        self.downstream = {name: {alert for alert in self.alerts if name in self.upstream[alert]} for name in uses}
        # Of each record, the alerts that tell of it and do not depend on it.
        told = {alert: set().union(*(self.upstream[n] for rule in rules if rulelib.name_of(rule) == alert for n in words(rule, texts=True) & recorded)) for alert in self.alerts}
        self.told = {name: {alert for alert in self.alerts if name in told[alert] - self.upstream[alert]} for name in uses}
        self.metrics = {name: set().union(*(uses[n] for n in self.upstream[name])) for name in uses}

    def concerns(self, case, alert):
        """Whether the case lets this alert fire, or has something unusual that it looks at."""
        return alert in case.alerts or bool(case.world.special & self.metrics[alert])


def closure(name, following):
    found, queue = {name}, [name]
    while queue:
        new = following(queue.pop()) - found
        found |= new
        queue += new
    return found
