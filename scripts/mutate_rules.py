#!/usr/bin/env python3
"""Tests the rule tests: changes one thing in one rule at a time and checks that a test fails.

usage: mutate_rules.py [--sample N] [--seed S] [--rules FILE] [--only REGEX] [--cases REGEX]
                       [--promtool PATH] [--processes N] [--least SHARE] [--results FILE] [--list]

These things change: each number and duration (doubled, halved; 0 becomes 1 and 1 becomes 0), each
comparison (negated, and without `bool`), + - * /, and/or/unless, sum, min, max and group, the
function over a range (max, min, sum, count and avg_over_time), each matcher of a selector (another
value, and negated), each list of labels to group or join by (without each label; `instance` added
to what is grouped), `for` and `keep_firing_for` (doubled, halved or removed), each label of an
alert.

All mutants of a rule run at once. Each mutant gets its own copy of the rule and of all rules
downstream. The names of the copies end with the number of the mutant, and alerts also have it in
the label `mutant`. Rules upstream exist once. The cases are those that concern the alerts
downstream, the most likely killers first. Survivors go on to the next cases. Nothing else can
change, so the results are those of the complete tests, in a fraction of the time. A mutant whose
rule can no longer be evaluated is killed.

A mutant that changes no alert may still change an annotation. So survivors, and mutants of rules
that only annotations read, are also tested on annotations.

--results FILE records each result with the rules and the cases that it depends on. A later run with
the same file tests only what has changed: a mutant stays killed while the case that killed it
exists, and a survivor is tested only on subjects with new cases.

alerts/mutation/equivalent.json lists the mutants that no test can kill because they behave the
same, each with its reason. The score is killed / (all - equivalent). Exit status 1 if the score is
below --least (default: 95 %), if a mutant of that list is killed or does not exist, and, when all
mutants run, if a survivor is not on the list. docs/alert-quality.md has the latest numbers."""

import argparse
import collections
import concurrent.futures
import hashlib
import json
import os
import pathlib
import random
import re
import subprocess
import sys
import tempfile
import threading
import time

import rulelib
from rule_graph import RuleGraph, words
from rule_tests import CASES
from rule_tests.promtool_file import as_yaml

EQUIVALENT = rulelib.ALERTS / "mutation" / "equivalent.json"
AT_ONCE = 24  # mutants in one promtool
FLIP = {">": "<=", "<": ">=", ">=": "<", "<=": ">", "==": "!=", "!=": "=="}
SET = {"and": "unless", "unless": "and", "or": "and"}
AGGREGATE = {"max": "min", "min": "max", "sum": "max", "group": "sum"}
ARITHMETIC = {"+": "-", "-": "+", "*": "/", "/": "*"}
MATCH = {"=": "!=", "!=": "=", "=~": "!~", "!~": "=~"}
OVER_TIME = {"max_over_time": "min_over_time", "min_over_time": "max_over_time", "sum_over_time": "count_over_time", "count_over_time": "sum_over_time", "avg_over_time": "max_over_time"}
TOKEN = re.compile(
    r"""(?P<list>\b(?:on|by|without|group_left|ignoring)\s*\([^)]*\))|(?P<over_time>\b(?:max|min|sum|count|avg)_over_time\b)
      |(?P<skip>[\w:]*redis_lock\w*(?::\w+)*|cordum_\w+|job:\w+:\w+|\w+_over_time|histogram_quantile)
      |(?P<label>"[^"]*")|(?P<match>(?<=\w)(?:=~|!~|!=|=)(?="))|(?P<duration>\b(?:\d+[smhd])+\b)|(?P<number>\b\d+(?:\.\d+)?\b)
      |(?P<compare>>=|<=|==|(?<![=!])!=(?!~)|>|<)|(?P<bool>\bbool )|(?P<arithmetic>(?<= )[-+*/](?=[ ]))|(?P<word>\b(?:and|or|unless|max|min|sum|group)\b)""", re.X)


def scaled(text, factor):
    seconds = sum(int(n) * {"s": 1, "m": 60, "h": 3600, "d": 86400}[u] for n, u in re.findall(r"(\d+)([smhd])", text))
    return f"{int(seconds * factor)}s"


def lists(text, after):
    """Returns the replacements for a list of labels: each label removed, and `instance` added to a
    grouping. The latter changes nothing if an earlier grouping already removed `instance`. An empty
    `on ()` gets a label, which then matches nothing."""
    word, labels = re.fullmatch(r"(\w+)\s*\(([^)]*)\)", text).groups()
    labels = [label.strip() for label in labels.split(",") if label.strip()]
    made = [labels[:i] + labels[i + 1:] for i in range(len(labels))]
    grouped = re.match(r"\s*\(\s*(?:max|sum|min|group) by \(([^)]*)\)", after)
    if word in ("by", "without") and "instance" not in labels and not (grouped and "instance" not in grouped[1]):
        made.append(labels + ["instance"])
    if word == "on" and not labels:
        made.append(["cluster"])
    return [f"{word} ({', '.join(of)})" for of in made] + ([""] if word == "group_left" else [])


def mutations(rule):
    """Yields (what changes, changed rule)."""
    expr, in_selector = rule["expr"], [(m.start(), m.end()) for m in re.finditer(r"\{[^}]*\}", rule["expr"])]
    seen = collections.Counter()
    for match in TOKEN.finditer(expr):
        text, kind = match.group(), match.lastgroup
        inside = any(a < match.start() < b for a, b in in_selector)
        new = []
        if kind == "label" and (inside or text != '""'):
            new = ['"mutant"']
        elif kind == "match":
            new = [MATCH[text]]
        elif inside or kind == "skip":
            continue
        elif kind == "list":
            new = lists(text, expr[match.end():])
        elif kind == "over_time":
            new = [OVER_TIME[text]]
        elif kind == "bool":
            new = [""]
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
            yield f"{text.strip()} ({seen[text]}) -> {replacement or 'nothing'}", changed
    for key in ("for", "keep_firing_for"):
        if key in rule:
            yield f"{key}: {rule[key]} -> twice", dict(rule, **{key: scaled(rule[key], 2)})
            yield f"{key}: {rule[key]} -> half", dict(rule, **{key: scaled(rule[key], 0.5)})
            yield f"{key}: {rule[key]} -> none", {k: v for k, v in rule.items() if k != key}
    if "alert" in rule:
        for label, value in rule["labels"].items():
            yield f"label {label}: {value} -> mutant", dict(rule, labels={**rule["labels"], label: "mutant"})


def full_name(rule):
    """Returns a unique name. Labels distinguish rules of the same name."""
    if "record" in rule:
        return rule["record"]
    return "/".join([rule["alert"], rule["labels"]["severity"]] + [v for k, v in rule["labels"].items() if k in ("missing", "scope")])


def renamed(rule, names, number):
    """Returns the copy of a rule that belongs to a mutant. The copy reads the mutant's own copies
    of the rules in `names`."""
    own = lambda text: re.sub(r"[a-zA-Z_:][\w:]*", lambda match: f"{match[0]}__{number}" if match[0] in names else match[0], text)
    copy = dict(rule, expr=own(rule["expr"]))
    if "record" in rule:
        copy["record"] = own(rule["record"])
    else:
        copy["alert"], copy["labels"] = f"{rule['alert']}__{number}", {**rule["labels"], "mutant": str(number)}
        copy["annotations"] = {key: own(text) for key, text in rule["annotations"].items()}
    return copy


def digest(value):
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]


class Results:
    """Known verdicts, one per line. The last line about a mutant counts."""

    def __init__(self, path):
        self.path, self.lock, self.known = path, threading.Lock(), {}
        if path and path.exists():
            for line in path.read_text().splitlines():
                entry = json.loads(line)
                self.known[entry["mutant"]] = entry

    def note(self, mutant, verdict, rules, alerts, cases, texts=False):
        if self.path:
            with self.lock, self.path.open("a") as file:
                entry = {"mutant": mutant, "verdict": verdict, "rules": rules, "alerts": sorted(alerts), "cases": sorted(cases), "texts": texts}
                file.write(json.dumps(entry) + "\n")


class Mutants:
    def __init__(self, rule_file, promtool, results, only_cases=""):
        self.groups, self.promtool, self.results = rulelib.load_groups(rulelib.ALERTS / rule_file), promtool, results
        self.version = subprocess.run([promtool, "--version"], capture_output=True, text=True, check=True).stdout.split("\n")[0]
        self.graph = RuleGraph(self.groups)
        self.cases = [case for case in CASES if case.rules == rule_file and re.search(only_cases, f"{case.file}: {case.name}")]
        self.digests = {case: digest([case.world.series, case.firing, case.last, case.every, *case.holds]) for case in self.cases}
        self.told_digests = {case: digest([self.digests[case], case.text]) for case in self.cases if case.text}
        self.all = [
            (f"{full_name(rule)}: {what}", (g, r), changed)
            for g, group in enumerate(self.groups) for r, rule in enumerate(group["rules"]) for what, changed in mutations(rule)
        ]
        assert len({mutant[0] for mutant in self.all}) == len(self.all), "two mutants of one name"

    def name_at(self, place):
        return rulelib.name_of(self.groups[place[0]]["rules"][place[1]])

    def concerned(self, alerts, cases):
        """Returns the alerts that these cases concern."""
        return {alert for alert in alerts if any(self.graph.concerns(case, alert) for case in cases)}

    def rules_digest(self, mutant, alerts, texts=False):
        """Returns a digest of the mutant and of all rules that these alerts or, with `texts`, their
        annotations depend on."""
        names = set().union(*(self.graph.upstream[alert] for alert in alerts if alert in self.graph.upstream), self.told_by(alerts) if texts else ())
        bare = lambda rule: {k: v for k, v in rule.items() if k != "line" and (texts or k != "annotations")}
        rules = [bare(rule) for group in self.groups for rule in group["rules"] if rulelib.name_of(rule) in names]
        return digest([self.version, bare(mutant[2]), rules])

    def remembered(self, mutant):
        """Returns (killed, digests of the cases that the mutant is known to survive)."""
        entry = self.results.known.get(mutant[0])
        if not entry or entry["rules"] != self.rules_digest(mutant, entry["alerts"], entry.get("texts", False)):
            return False, set()
        if entry["verdict"] == "killed":
            return set(entry["cases"]) <= {*self.digests.values(), *self.told_digests.values()}, set()
        return False, set(entry["cases"])

    def survivors(self, mutants):
        """Returns the names of those mutants that no case kills. All mutants must be of one
        rule."""
        name = self.name_at(mutants[0][1])
        alerts = self.graph.downstream[name]
        cases = [case for case in self.cases if any(self.graph.concerns(case, alert) for alert in alerts)]
        # Cases with few evaluations are cheap. Cases in which the alert fires kill more often than
        # quiet ones.
        cases.sort(key=lambda case: (case.last / case.every > 120, not case.alerts & alerts, case.last / case.every))
        survived = {}
        for mutant in mutants:
            survived.setdefault(frozenset(self.remembered(mutant)[1]), []).append(mutant)
        unseen = {seen: {case.file for case in cases if self.digests[case] not in seen} for seen in survived}
        return [name for seen, group in survived.items() for name in self.not_killed(group, [case for case in cases if case.file in unseen[seen]], seen, alerts)]

    def not_killed(self, mutants, cases, seen, alerts):
        # If many alerts depend on the rule, testing all of them is expensive. First test each alert
        # alone, on short cases in which it fires.
        if len(alerts) > 3:
            for alert in sorted(alerts):
                fires = [case for case in cases if alert in case.alerts and case.file != "beside"]
                for every in {case.every for case in fires[:6]}:
                    mutants = self.not_killed_by(mutants, [case for case in fires[:6] if case.every == every], {alert})
        # A few short cases kill most mutants that lose a label. Cases with many lock namespaces
        # ("beside") kill mutants with a wrong join.
        others = [case for case in cases if case.file != "beside"]
        chunks = [others[:6], [case for case in cases if case.file == "beside"], others[6:40], others[40:130], others[130:]]
        tried = set(seen)
        for chunk in chunks:
            for every in sorted({case.every for case in chunk}, reverse=True):
                part = [case for case in chunk if case.every == every]
                mutants = self.not_killed_by(mutants, part, self.concerned(alerts, part))
            tried |= {self.digests[case] for case in chunk}
        # A mutant that changes no alert may still change an annotation, of this alert or of another
        # one.
        telling = alerts | (self.graph.told[self.name_at(mutants[0][1])] if mutants else set())
        for case in self.told_digests if mutants else ():
            mutants = self.not_killed_by(mutants, [case], telling & {entry[1] for entry in case.text}, texts=True)
        for mutant in mutants:
            self.results.note(mutant[0], "survived", self.rules_digest(mutant, alerts), alerts, tried)
        return [mutant[0] for mutant in mutants]

    def not_killed_by(self, mutants, cases, alerts, texts=False):
        killed = self.killed(mutants, cases, alerts, texts) if mutants and alerts else {}
        for number, killers in killed.items():
            digests = {(self.told_digests if texts else self.digests)[case] for case in killers}
            self.results.note(mutants[number][0], "killed", self.rules_digest(mutants[number], alerts, texts), alerts, digests, texts)
        return [mutant for i, mutant in enumerate(mutants) if i not in killed]

    def killed(self, mutants, cases, alerts, texts):
        """Returns {number: cases that kill it} for the killed mutants. A rule that fails, for
        example because two series match where one is expected, is also a kill. promtool then stops
        the world in which the rule fails, so the other mutants run again without this one."""
        found, left = {}, list(range(len(mutants)))
        while left:
            passed, output = self.test([mutants[i] for i in left], cases, alerts, texts)
            if passed:
                break
            failed = [left[int(number)] for number in re.findall(r"^ *rule: \S+__(\d+), time: \S+, err: ", output, re.M)]
            differs = [(left[int(number)], [cases[int(cluster)]] if cluster else cases)
                       for cluster, number in re.findall(r'expr: "ALERTS\{alertstate=\\"firing\\"(?:,cluster=~\\"(\d+)\.\*\\")?,mutant=\\"(\d+)', output)]
            differs += [(left[int(number)], [cases[int(cluster)]]) for number, cluster in re.findall(r'expr: "(?!ALERTS)[^\n]*?__(\d+)\{cluster=~\\"(\d+)\.', output)]
            differs += [(left[int(number)], cases) for number in re.findall(r"^ *alertname: \w+__(\d+), time: ", output, re.M)]
            for number, killers in differs + [(number, cases) for number in failed]:
                found.setdefault(number, killers)
            if not failed:
                if not differs:
                    sys.exit(f"no mutant is to blame:\n{output}")
                break
            left = [i for i in left if i not in found]
        return found

    def told_by(self, alerts):
        """Returns the recorded series that the annotations of these alerts read, and everything
        that those series depend on."""
        rules = [rule for group in self.groups for rule in group["rules"]]
        asked = set().union(*(words(rule, texts=True) for rule in rules if rulelib.name_of(rule) in alerts))
        return set().union(*(self.graph.upstream[rule["record"]] for rule in rules if "record" in rule and rule["record"] in asked))

    def test(self, mutants, cases, alerts, texts=False):
        """Returns (passed, output) of promtool, with these alerts only. Mutants are numbered in the
        given order."""
        place = mutants[0][1]
        name = self.name_at(place)
        upstream = set().union(*(self.graph.upstream[alert] for alert in alerts)) | (self.told_by(alerts) if texts else set())
        own = {n for n in upstream if n not in self.graph.alerts and name in self.graph.upstream[n]}
        groups = []
        for g, group in enumerate(self.groups):
            rules = []
            for r, rule in enumerate(group["rules"]):
                if "record" in rule and rule["record"] in upstream - own:
                    rules.append(rule)
                elif rulelib.name_of(rule) in own | alerts:
                    for number, (_, _, changed) in enumerate(mutants):
                        rules.append(renamed(changed if (g, r) == place else rule, own, number))
            if rules:
                groups.append(dict(group, rules=rules))
        metrics = set().union(*(words(rule, texts) for group in groups for rule in group["rules"]))
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            (folder / "rules.yml").write_text(rulelib.rules_as_yaml(groups, texts))
            order = [group["name"] for group in groups]
            (folder / "test.yml").write_text(as_yaml(cases, "rules.yml", order, only=alerts, metrics=metrics, mutants=len(mutants), own=own, texts=texts))
            return rulelib.run_promtool(self.promtool, "test.yml", cwd=folder)

    def control(self, alert):
        """Checks that the cases of an alert pass with unchanged rules. Otherwise kills would mean
        nothing."""
        place, rule = next(((g, r), rule) for g, group in enumerate(self.groups) for r, rule in enumerate(group["rules"]) if rulelib.name_of(rule) == alert)
        cases = [case for case in self.cases if self.graph.concerns(case, alert)]
        nothing = (f"{alert}: nothing", place, rule)
        seen = self.remembered(nothing)[1]
        told = [case for case in self.told_digests if any(entry[1] == alert for entry in case.text)]
        parts = [([case for case in cases if case.every == every and self.digests[case] not in seen], False) for every in {case.every for case in cases}]
        for part, texts in [*parts, ([case for case in told if self.told_digests[case] not in seen], True)]:
            passed, output = self.test([nothing], part, {alert}, texts) if part else (True, "")
            if not passed:
                sys.exit(f"{alert}: its cases fail although no rule is changed\n{output}")
        digests = {self.digests[case] for case in cases} | {self.told_digests[case] for case in told}
        self.results.note(nothing[0], "survived", self.rules_digest(nothing, [alert], texts=True), [alert], digests, texts=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sample", type=int, help="test this many mutants, drawn with --seed")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rules", default="redis_lock.rules.yml")
    parser.add_argument("--only", help="test only mutants whose names match this regular expression")
    parser.add_argument("--cases", default="", help="use only cases whose subject and name match this regular expression, to try new ones")
    parser.add_argument("--promtool", default="promtool")
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    parser.add_argument("--least", type=float, default=0.95)
    parser.add_argument("--results", type=pathlib.Path, help="record verdicts in this file, and reuse those that are still valid")
    parser.add_argument("--list", action="store_true", help="only list the mutants")
    options = parser.parse_args()
    mutants = Mutants(options.rules, options.promtool, Results(options.results), options.cases)
    equivalent = json.loads(EQUIVALENT.read_text())[options.rules]
    chosen = [mutant for mutant in mutants.all if not options.only or re.search(options.only, mutant[0])]
    if options.sample:
        chosen = random.Random(options.seed).sample(chosen, min(options.sample, len(chosen)))
    whole = len(chosen) == len(mutants.all)
    if options.list:
        print(*(mutant[0] for mutant in chosen), sep="\n")
        return

    begun, survivors = time.monotonic(), []
    with concurrent.futures.ThreadPoolExecutor(options.processes) as pool:
        if whole:
            list(pool.map(mutants.control, mutants.graph.alerts))
        by_rule = collections.defaultdict(list)
        for mutant in chosen:
            if not mutants.remembered(mutant)[0]:
                by_rule[mutant[1]].append(mutant)
        batches = [of_rule[i:i + AT_ONCE] for of_rule in by_rule.values() for i in range(0, len(of_rule), AT_ONCE)]
        for names in pool.map(mutants.survivors, batches):
            survivors += names
            for name in names:
                print("equivalent:" if name in equivalent else "survived:", name, flush=True)
    explained = [name for name in survivors if name in equivalent]
    counted, killed = len(chosen) - len(explained), len(chosen) - len(survivors)
    score = killed / max(counted, 1)
    print(f"{options.rules}: {len(chosen)} of {len(mutants.all)} mutants tried: {killed} killed, {len(survivors) - len(explained)} survived, "
          f"{len(explained)} equivalent: {score:.1%} of {counted}, {time.monotonic() - begun:.0f} s")
    names = {mutant[0] for mutant in mutants.all}
    problems = [f"equivalent.json names a mutant that does not exist: {name}" for name in equivalent if name not in names]
    problems += [f"equivalent.json names a mutant that was killed: {name}" for name, *_ in chosen if name in equivalent and name not in survivors]
    if score < options.least:
        problems.append(f"fewer than {options.least:.0%} were killed")
    if whole and len(explained) < len(survivors):
        problems.append("survivors that equivalent.json does not explain, see above: add a case, simplify the rule, or give the reason")
    if problems:
        sys.exit("\n".join(problems))


if __name__ == "__main__":
    main()
