#!/usr/bin/env python3
"""Checks that dashboards/*.json match the output of scripts/dashboards, and that they fit Grafana's
published types, for the oldest and the newest supported Grafana version.

Importing and casting a JSON file would hide errors. So each file becomes a TypeScript literal, and
the compiler checks it against the types. The types come from npm, with versions and checksums in
scripts/grafana_types; scripts/install.sh puts them into target/grafana_types."""

import pathlib
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
SOURCE, WORK = ROOT / "scripts" / "grafana_types", ROOT / "target" / "grafana_types"
GENERATIONS = ["10", "13"]


def main():
    subprocess.run([sys.executable, ROOT / "scripts" / "make_dashboards.py", "--check"], check=True)
    compiler = WORK / "node_modules" / "typescript" / "bin" / "tsc"
    if not compiler.exists():
        sys.exit("Grafana's types are missing: scripts/install.sh installs them")
    for path in [SOURCE / "dashboard.ts", *SOURCE.glob("tsconfig.*.json")]:
        shutil.copy(path, WORK)
    literals = ['import type { Checked } from "./dashboard";\n']
    for path in sorted((ROOT / "dashboards").glob("*.json")):
        literals.append(f"// {path.name}\nexport const {path.stem}: Checked = {path.read_text().rstrip()};\n")
    (WORK / "literals.ts").write_text("".join(literals))
    for generation in GENERATIONS:
        done = subprocess.run(["node", compiler, "--project", WORK / f"tsconfig.{generation}.json"], capture_output=True, text=True, check=False)
        if done.returncode:
            sys.exit(f"not what Grafana {generation} publishes as its types (lines of {WORK.relative_to(ROOT)}/literals.ts):\n{done.stdout}{done.stderr}")
    print(f"{len(literals) - 1} dashboards fit the types of Grafana {' and '.join(GENERATIONS)}")


main()
