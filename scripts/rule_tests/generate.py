"""Writes the test files for promtool into target/rule-tests.

focused/NAME.yml   some cases, with only the rules that they need (focus.py) in focused/rules/NAME.yml
whole/NAME.yml     all cases of a subject, with the complete rule file in whole/rules/

Files that already have the right content are not touched. Files of cases that no longer exist are deleted.
"""

import os
import re

import rulelib
from rule_graph import words

from . import CASES
from .focus import Batch, Focus
from .promtool_file import as_yaml, duration

RULE_FILES = (rulelib.MAIN_RULES, rulelib.CORDUM_RULES)


class TestFile:
    """One test file and the rule file that it loads. `cost`: an estimate of the time that it
    takes."""

    def __init__(self, name, text, rules, rules_text, cost):
        self.name, self.text, self.rules, self.rules_text, self.cost = name, text, rules, rules_text, cost

    def path(self, directory):
        return directory / f"{self.name}.yml"

    def write(self, directory):
        for path, text in ((directory / "rules" / self.rules, self.rules_text), (self.path(directory), self.text)):
            if not path.exists() or path.read_text() != text:
                path.parent.mkdir(parents=True, exist_ok=True)
                temporary = path.with_name(f".{path.name}.{os.getpid()}")
                temporary.write_text(text)
                temporary.replace(path)


def test_directory():
    return rulelib.ROOT / os.environ.get("CARGO_TARGET_DIR", "target") / "rule-tests"


def by_interval(cases):
    """Returns {interval: cases}, by the time between two evaluations of the rules."""
    found = {}
    for case in cases:
        found.setdefault(duration(case.every), []).append(case)
    return found


def head(cases):
    subjects = ", ".join(dict.fromkeys(case.file for case in cases))
    return f"# Written by scripts/run_rule_tests.py: {len(cases)} cases about {subjects}. Run: promtool test rules FILE\n"


def focused_files():
    for path in RULE_FILES:
        groups = rulelib.load_groups(path)
        focus = Focus(groups, [case for case in CASES if case.rules == path.name])
        # Annotations are compared using the file that users load.
        with_texts = [case for case in focus.cases if case.text]
        if with_texts:
            yield whole_file("annotations", with_texts, path, groups, focus)
        for interval, cases in by_interval(case for case in focus.cases if not case.text).items():
            for number, batch in enumerate(sorted(focus.batches(cases), key=lambda batch: batch.cost), 1):
                name = f"{path.name.split('.')[0]}_every_{interval}-{number:02}"
                rules_text = rulelib.cut_rules(path, batch.rules)
                kept = rulelib.parse_groups(rules_text, path.name)
                metrics = set().union(*(words(rule) for group in kept for rule in group["rules"]))
                text = head(batch.cases) + as_yaml(batch.cases, f"rules/{name}.yml", [group["name"] for group in kept], metrics=metrics, silent=focus.silent)
                yield TestFile(name, text, f"{name}.yml", rules_text, batch.cost)


def whole_files():
    for path in RULE_FILES:
        groups = rulelib.load_groups(path)
        focus = Focus(groups, cases := [case for case in CASES if case.rules == path.name])
        for subject in dict.fromkeys(case.file for case in cases):
            for interval, of_interval in by_interval(case for case in cases if case.file == subject).items():
                yield whole_file(f"{subject}_every_{interval}", of_interval, path, groups, focus)


def whole_file(name, cases, path, groups, focus):
    text = head(cases) + as_yaml(cases, f"rules/{path.name}", [group["name"] for group in groups], silent=focus.silent)
    cost = Batch(focus.costs, frozenset(focus.graph.upstream), cases).cost
    return TestFile(name, text, path.name, path.read_text(), cost)


def write(kind):
    """Writes the files of this kind, "focused" or "whole". Returns their directory and the
    files."""
    directory = test_directory() / kind
    files = list(focused_files() if kind == "focused" else whole_files())
    for file in files:
        file.write(directory)
    expected = {file.path(directory) for file in files} | {directory / "rules" / file.rules for file in files}
    for path in {*directory.glob("*.yml"), *directory.glob("rules/*.yml")} - expected:
        path.unlink()
    return directory, files


def case_names(test_text, output):
    """Returns the names of the cases that fail in promtool's output, if the output contains
    them."""
    names = dict(re.findall(r"^      # cluster (\d+): (.*)$", test_text, re.M))
    return list(dict.fromkeys(names[number] for number in re.findall(r'cluster=~\\?"(\d+)\.', output) if number in names))
