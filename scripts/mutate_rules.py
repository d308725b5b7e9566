#!/usr/bin/env python3
"""Do the rule tests bind? Changes one thing of one rule at a time and looks whether a test fails.

usage: mutate_rules.py [--sample N] [--seed S] [--rules FILE] [--promtool PATH] [--survivors FILE] [--least SHARE]

Changed are: each number and duration (twice, half; 0 and 1 into each other), each comparison (turned round), and/or/unless, sum, min and max,
each label value in a selector, `for` and `keep_firing_for` (twice, half or none), each alert's labels.

A mutant is tried on the alerts that depend on its rule: the rules are cut down to what these need, the cases to those about them, and
expectations to these alerts. Nothing else can change, so this finds what the whole tests would, in a fraction of the time.

Exit code 1 if fewer are killed than --least says (95 % unless told otherwise). docs/alert-quality.md has the last numbers."""

import argparse
import concurrent.futures
import copy
import os
import pathlib
import random
import re
import sys
import tempfile
import time

import rulelib
from rule_cases import CASES
from rule_world import as_yaml

FLIP = {">": "<=", "<": ">=", ">=": "<", "<=": ">", "==": "!=", "!=": "=="}
SET = {"and": "unless", "unless": "and", "or": "and"}
AGGREGATE = {"max": "min", "min": "max", "sum": "max"}
TOKEN = re.compile(
    r"""(?P<skip>\b(?:on|by|without|group_left|ignoring)\s*\([^)]*\)|[\w:]*redis_lock\w*(?::\w+)*|cordum_\w+|job:\w+:\w+|\w+_over_time|histogram_quantile)
      |(?P<label>"[^"]*")|(?P<duration>\b(?:\d+[smhd])+\b)|(?P<number>\b\d+(?:\.\d+)?\b)
      |(?P<compare>>=|<=|==|(?<![=!])!=(?!~)|>|<)|(?P<word>\b(?:and|or|unless|max|min|sum)\b)""", re.X)


def scaled(text, factor):
    seconds = sum(int(n) * {"s": 1, "m": 60, "h": 3600, "d": 86400}[u] for n, u in re.findall(r"(\d+)([smhd])", text))
    return f"{int(seconds * factor)}s"


def mutations(rule):
    """(what, changed rule)"""
    expr, in_selector = rule["expr"], [(m.start(), m.end()) for m in re.finditer(r"\{[^}]*\}", rule["expr"])]
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
        elif kind == "word":
            after = expr[match.end():].lstrip()
            new = [SET[text]] if text in SET else [AGGREGATE[text]] if after.startswith(("by", "(", "without")) else []
        for replacement in new:
            changed = dict(rule, expr=expr[:match.start()] + replacement + expr[match.end():])
            yield f"{text} -> {replacement} at {match.start()}", changed
    for key in ("for", "keep_firing_for"):
        if key in rule:
            yield f"{key}: {rule[key]} -> twice", dict(rule, **{key: scaled(rule[key], 2)})
            yield f"{key}: {rule[key]} -> half", dict(rule, **{key: scaled(rule[key], 0.5)})
            yield f"{key}: {rule[key]} -> none", {k: v for k, v in rule.items() if k != key}
    if "alert" in rule:
        for label, value in rule["labels"].items():
            yield f"label {label}: {value} -> mutant", dict(rule, labels={**rule["labels"], label: "mutant"})


def names_in(rule, known):
    return {name for name in re.findall(r"[a-zA-Z_:][\w:]*", rule["expr"]) if name in known}


class Mutants:
    def __init__(self, rule_file, promtool):
        self.path = rulelib.ALERTS / rule_file
        self.groups, self.promtool = rulelib.load_groups(self.path), promtool
        self.cases = [case for case in CASES if case.rules == rule_file]
        self.recorded = {r["record"] for g in self.groups for r in g["rules"] if "record" in r}
        self.all = [(g, r, what, changed) for g, group in enumerate(self.groups) for r, rule in enumerate(group["rules"]) for what, changed in mutations(rule)]

    def label(self, mutant):
        g, r, what, _ = mutant
        rule = self.groups[g]["rules"][r]
        twin = "" if "record" in rule else "/" + rule["labels"]["severity"] + "".join(f"/{v}" for k, v in rule["labels"].items() if k == "missing")
        return f"{rulelib.name_of(rule)}{twin}: {what}"

    def run(self, mutant):
        """True if killed"""
        g, r, _, changed = mutant
        groups = copy.deepcopy(self.groups)
        groups[g]["rules"][r] = changed
        rules = [rule for group in groups for rule in group["rules"]]
        # Downstream of what changed, then upstream of the alerts found.
        touched, alerts = {rulelib.name_of(changed)}, set()
        for _ in range(6):
            for rule in rules:
                if names_in(rule, self.recorded) & touched or rulelib.name_of(rule) in touched:
                    touched.add(rulelib.name_of(rule))
        alerts = {name for name in touched if name not in self.recorded}
        needed = set(alerts)
        for _ in range(6):
            for rule in rules:
                if rulelib.name_of(rule) in needed:
                    needed |= names_in(rule, self.recorded)
        for group in groups:
            group["rules"] = [rule for rule in group["rules"] if rulelib.name_of(rule) in needed]
        groups = [group for group in groups if group["rules"]]
        metrics = set(re.findall(r"[a-zA-Z_:][\w:]*", " ".join(rule["expr"] for group in groups for rule in group["rules"])))
        about = [case for case in self.cases if any(a["alertname"] in alerts for firing in case.firing.values() for a in firing) or case.file in self.files_of(alerts)]
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            (folder / "rules.yml").write_text(rulelib.rules_as_yaml(groups))
            order = [group["name"] for group in groups]
            # The shortest first: most mutants die young.
            about.sort(key=lambda case: case.world.minutes)
            short = [case for case in about if case.world.minutes <= 110]
            for part in (short, about[len(short):]):
                if part:
                    (folder / "test.yml").write_text(as_yaml(part, "rules.yml", order, only=alerts, metrics=metrics))
                    if not rulelib.run_promtool(self.promtool, "test.yml", cwd=folder)[0]:
                        return True
        return False

    def files_of(self, alerts):
        return {case.file for case in self.cases if any(a["alertname"] in alerts for firing in case.firing.values() for a in firing)} - {"not_owned", "exporter"} if len(alerts) == 1 else set()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sample", type=int)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rules", default="redis_lock.rules.yml")
    parser.add_argument("--promtool", default="promtool")
    parser.add_argument("--survivors", help="write the survivors here")
    parser.add_argument("--seconds", type=float, default=1e9, help="begin no mutant after this")
    parser.add_argument("--least", type=float, default=0.95)
    options = parser.parse_args()
    mutants = Mutants(options.rules, options.promtool)
    chosen = list(mutants.all)
    random.Random(options.seed).shuffle(chosen)
    chosen = chosen[:options.sample] if options.sample else chosen

    begun, done, survivors = time.monotonic(), 0, []
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        def job(mutant):
            return None if time.monotonic() - begun > options.seconds else mutants.run(mutant)
        for mutant, killed in zip(chosen, pool.map(job, chosen)):
            if killed is None:
                continue
            done += 1
            if not killed:
                survivors.append(mutants.label(mutant))
                print("survived:", survivors[-1], flush=True)
    rate = 1 - len(survivors) / max(done, 1)
    print(f"{options.rules}: {done} of {len(mutants.all)} mutants tried, {done - len(survivors)} killed, {len(survivors)} survived: {rate:.1%}, {time.monotonic() - begun:.0f} s")
    if options.survivors:
        pathlib.Path(options.survivors).write_text("".join(f"{name}\n" for name in sorted(survivors)))
    if rate < options.least:
        sys.exit(f"fewer than {options.least:.0%} were killed")


if __name__ == "__main__":
    main()
