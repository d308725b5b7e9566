#!/usr/bin/env python3
"""Writes the tests of the alert rules into target/rule-tests and runs them with promtool. The cases
are in scripts/rule_tests.

usage: run_rule_tests.py [--whole] [--again] [--write-only] [PROMTOOL...]
       (default: the promtool on the PATH)

Focused tests load only the rules that their cases need, which takes a third of the time
(scripts/rule_tests/focus.py explains why this is enough). With --whole, each case runs against the
complete rule file.

A test that passed is not run again while its rules, its cases and the version of promtool stay the
same. --again runs it anyway. --write-only only writes the files. Exits with status 1 if a test
fails.
"""

import argparse
import concurrent.futures
import hashlib
import os
import subprocess
import sys
import time

import rulelib
from rule_tests import generate

SHOWN_LINES = 40  # lines of promtool's output that are shown for a file that fails
STAMP_DAYS = 30  # how long to remember a test that passed and is no longer run


class Run:
    """One test file on one promtool."""

    def __init__(self, promtool, version, kind, directory, file):
        self.promtool, self.version, self.kind, self.directory, self.file = promtool, version, kind, directory, file
        # Other cases may change the number in a file's name. That does not change the test.
        text = file.text.replace(f"rules/{file.rules}", "rules")
        self.digest = hashlib.sha256("\0".join((version, text, file.rules_text)).encode()).hexdigest()
        self.stamp = generate.test_directory() / "passed" / self.digest
        self.seconds = 0.0

    def has_passed(self):
        if not self.stamp.exists():
            return False
        self.stamp.touch()
        return True

    def start(self):
        """Returns a report if the test fails."""
        path, started = self.file.path(self.directory), time.monotonic()
        passed, output = rulelib.run_promtool(self.promtool, path)
        self.seconds = time.monotonic() - started
        if passed:
            self.stamp.parent.mkdir(parents=True, exist_ok=True)
            self.stamp.write_text(f"{self.version}: {self.kind}/{self.file.name}\n")
            return None
        lines = output.splitlines()
        shown = [*lines[:SHOWN_LINES], f"({len(lines) - SHOWN_LINES} more lines)"] if len(lines) > SHOWN_LINES else lines
        cases = "".join(f"\n  case: {name}" for name in generate.case_names(self.file.text, output))
        return "\n".join((*shown, f"FAILED: {self.promtool} test rules '{path}'{cases}"))


def remove_old_stamps():
    for stamp in (generate.test_directory() / "passed").glob("*"):
        if time.time() - stamp.stat().st_mtime > STAMP_DAYS * 86400:
            stamp.unlink(missing_ok=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--whole", action="store_true", help="run every case against the complete rule file")
    parser.add_argument("--again", action="store_true", help="also run what passed before and did not change")
    parser.add_argument("--write-only", action="store_true", help="write the files and print their directory")
    parser.add_argument("--times", action="store_true", help="print the seconds that each file took")
    parser.add_argument("promtool", nargs="*", default=["promtool"])
    options = parser.parse_args()
    kind = "whole" if options.whole else "focused"
    directory, files = generate.write(kind)
    if options.write_only:
        print(directory)
        return

    started, runs = time.monotonic(), []
    for promtool in options.promtool:
        version = subprocess.run([promtool, "--version"], capture_output=True, text=True, check=True)
        version = (version.stdout or version.stderr).splitlines()[0]
        runs += [Run(promtool, version, kind, directory, file) for file in files]
    to_run = [run for run in runs if options.again or not run.has_passed()]
    # The longest first, so that all processors finish at about the same time.
    to_run.sort(key=lambda run: -run.file.cost)
    failed = 0
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for report in pool.map(Run.start, to_run):
            if report:
                failed += 1
                print(report, file=sys.stderr, flush=True)
    if options.times:
        for run in sorted(to_run, key=lambda run: -run.seconds):
            print(f"{run.seconds:6.1f} s, {run.file.cost / 1e6:5.1f} s expected: {run.version.split()[2]} {run.file.name}")
    remove_old_stamps()
    versions = ", ".join(dict.fromkeys(run.version.split()[2] for run in runs))
    print(f"{kind} rule tests on promtool {versions}: {len(to_run) - failed} passed, {failed} failed, "
          f"{len(runs) - len(to_run)} unchanged since they passed, {time.monotonic() - started:.0f} s", file=sys.stderr)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
