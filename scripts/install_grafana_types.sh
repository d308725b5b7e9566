#!/usr/bin/env bash
# Fetches Grafana's published types of dashboards and the TypeScript compiler for scripts/check_dashboards.py, from npm into
# target/grafana_types. Versions and checksums are in scripts/grafana_types. Does nothing where they are there already.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=scripts/lib.sh
source scripts/lib.sh

types=target/grafana_types
# Written last, so that it says that all of it is there.
cmp --silent scripts/grafana_types/package-lock.json "$types/installed" && exit 0
say "fetching Grafana's types of dashboards"
mkdir -p "$types"
cp scripts/grafana_types/package.json scripts/grafana_types/package-lock.json "$types"
npm ci --prefix "$types" --ignore-scripts --no-audit --no-fund --loglevel=error </dev/null >&2
cp scripts/grafana_types/package-lock.json "$types/installed"
