#!/usr/bin/env python3
"""Writes dashboards/*.json from scripts/dashboards/. With --check, writes nothing and fails if a
file is out of date."""

import json
import pathlib
import sys

import dashboards

DIRECTORY = pathlib.Path(__file__).resolve().parent.parent / "dashboards"


def as_text(make):
    return json.dumps(make(), indent=2, ensure_ascii=False) + "\n"


def main():
    outdated = []
    for name, make in dashboards.ALL.items():
        path, text = DIRECTORY / f"{name}.json", as_text(make)
        if path.exists() and path.read_text() == text:
            continue
        outdated.append(str(path.relative_to(DIRECTORY.parent)))
        if "--check" not in sys.argv:
            path.write_text(text)
    if "--check" in sys.argv and outdated:
        sys.exit(f"{', '.join(outdated)}: not what scripts/dashboards makes; run scripts/make_dashboards.py")
    print(f"written: {', '.join(outdated) or 'nothing, all are up to date'}" if "--check" not in sys.argv else "dashboards are up to date")


main()
