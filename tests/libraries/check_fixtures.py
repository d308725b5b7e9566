#!/usr/bin/env python3
"""Replays the recorded logs of lock libraries through the exporter, in every wrapping, and compares its counts with what
the programs knew: tests/fixtures/libraries, written by conduct.py.

    check_fixtures.py BINARY [--wrapping NAME] [--fixture PART] [--config FILE]

For each wrapping all presets are loaded at once, so a failure must count once, under its own preset. Bare logs are replayed
with their preset alone as well. Near misses must stay silent. --config takes a configuration instead of the presets.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from wrappings import SKIPPED, WRAPPINGS

ROOT = Path(__file__).resolve().parent.parent.parent
FIXTURES = ROOT / "tests/fixtures/libraries"
# Pairs of presets that claim the same keys and must not be active together.
NAMESPACES = [{"name": "pottery", "keys": []}]
# Without times, two lines about one failure count as two if another program's line is between them.
COUNTS_REPEATS = {"compose"}


def expected(about):
    found = []
    for event in about["events"]:
        told = event.get("told", event)
        # A release or renewal that was refused because the lock was lost is one event with one
        # name: not_owned.
        name = "not_owned" if told["reason"] == "not_owned" else told["event"]
        found.append((name, told["operation"], told["reason"], event["lock_key"]))
    return found


def replay(binary, config, files):
    """Returns events by file name: (event, operation, reason, key or else id), the matching rule, and the position."""
    command = [binary, "replay", "--config.file", str(config), "--output", "events", *map(str, files)]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=300)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command[:5])} ... ended with {done.returncode}:\n{done.stderr}")
    events = {}
    for line in done.stdout.splitlines():
        event = json.loads(line)
        shown = (event["event"], event["operation"], event["reason"], event.get("lock_key") or event.get("lock_id"))
        events.setdefault(event["file"], []).append((shown, event["rule"], event["offset"]))
    return events


def without_repeats(events):
    return [event for index, event in enumerate(events) if index == 0 or event != events[index - 1]]


def compare(name, about, events, counts_repeats=False):
    """Returns a sentence for each difference."""
    wanted, found = expected(about), [shown for shown, _, _ in events]
    if counts_repeats:
        wanted, found = without_repeats(wanted), without_repeats(found)
    problems = []
    if found != wanted:
        problems.append(f"{name}: expected {len(wanted)} failures, counted {len(found)}")
        for index in range(max(len(wanted), len(found))):
            left = wanted[index] if index < len(wanted) else None
            right = events[index] if index < len(events) else None
            if right is None or left != right[0]:
                problems.append(f"    {index}: expected {left}, counted {right}")
    for _, rule, offset in events:
        if not rule.startswith(about["preset"] + "/"):
            problems.append(f"{name}: rule {rule} took a failure of {about['preset']} at byte {offset}")
    return problems


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("binary")
    parser.add_argument("--wrapping")
    parser.add_argument("--fixture", default="")
    parser.add_argument("--config")
    options = parser.parse_args()
    abouts = {path.with_suffix("").relative_to(FIXTURES): json.loads(path.read_text()) for path in sorted(FIXTURES.glob("*/*.json"))
              if options.fixture in str(path.relative_to(FIXTURES))}
    if not abouts:
        sys.exit(f"no fixtures in {FIXTURES} have {options.fixture!r} in their name")
    presets = sorted(path.stem for path in (ROOT / "presets").glob("*.yaml") if path.stem not in ("generic", "cordum"))
    passed, problems, skipped = 0, [], []
    with tempfile.TemporaryDirectory() as directory:
        config = Path(options.config) if options.config else Path(directory) / "all.yaml"
        if not options.config:
            config.write_text(json.dumps({"presets": presets, "namespaces": NAMESPACES}))
        for wrapping, wrap in WRAPPINGS.items():
            if options.wrapping not in (None, wrapping):
                continue
            files = {}
            for name in abouts:
                if (wrapping, str(name)) in SKIPPED:
                    skipped.append(f"{name}, {wrapping}: skipped, {SKIPPED[wrapping, str(name)]}")
                    continue
                path = Path(directory) / f"{wrapping}-{str(name).replace('/', '-')}.log"
                path.write_text(wrap((FIXTURES / f"{name}.log").read_text()))
                files[name] = path
            events = replay(options.binary, config, files.values()) if files else {}
            for name, path in files.items():
                found = compare(f"{name}, {wrapping}", abouts[name], events.get(str(path), []), wrapping in COUNTS_REPEATS)
                problems += found
                passed += not found
        if options.wrapping in (None, "bare") and not options.config:
            for preset in sorted({about["preset"] for about in abouts.values()} - {"near-misses"}):
                config.write_text(json.dumps({"presets": [preset]}))
                names = [name for name, about in abouts.items() if about["preset"] == preset]
                events = replay(options.binary, config, [FIXTURES / f"{name}.log" for name in names])
                for name in names:
                    found = compare(f"{name}, its preset alone", abouts[name], events.get(str(FIXTURES / f"{name}.log"), []))
                    problems += found
                    passed += not found
    failed = sum(not problem.startswith(" ") for problem in problems)
    print("\n".join(skipped + problems))
    print(f"{passed} passed, {failed} failed, {len(skipped)} skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
