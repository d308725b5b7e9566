#!/usr/bin/env python3
"""Writes alerts/tests/*.yml from scripts/rule_cases.py: plain promtool tests, one file for each group of rules.

usage: make_rule_tests.py [--check]

With --check nothing is written; exit code 1 if a committed file is not what it should be."""

import sys

import rulelib
from rule_tests import CASES
from rule_tests.promtool_file import as_yaml, duration
from rule_tests.world import STEP

HEAD = "# Made from scripts/rule_cases.py by scripts/make_rule_tests.py: change that, not this. Run: promtool test rules FILE\n"


def files():
    names = {}
    for case in CASES:
        file = case.file if case.every == STEP else f"{case.file}_every_{duration(case.every)}"
        names.setdefault((file, case.rules), []).append(case)
    for (file, rules), cases in names.items():
        groups = [group["name"] for group in rulelib.load_groups(rulelib.ALERTS / rules)]
        yield rulelib.ALERTS / "tests" / f"{file}.yml", HEAD + as_yaml(cases, f"../{rules}", groups)


def main():
    check = sys.argv[1:] == ["--check"]
    expected = dict(files())
    surplus = set((rulelib.ALERTS / "tests").glob("*.yml")) - set(expected)
    wrong = [p.name for p, text in expected.items() if not p.exists() or p.read_text() != text] + [p.name for p in surplus]
    if check and wrong:
        sys.exit(f"alerts/tests is out of date ({', '.join(wrong)}): run scripts/make_rule_tests.py")
    if not check:
        for path, text in expected.items():
            path.write_text(text)
        for path in surplus:
            path.unlink()


if __name__ == "__main__":
    main()
