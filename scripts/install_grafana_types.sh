#!/usr/bin/env bash
# Fetches Grafana's published dashboard types and the TypeScript compiler from npm into
# target/grafana_types. scripts/check_dashboards.py uses them. Versions and checksums are in
# scripts/grafana_types. Does nothing if they are already there.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=scripts/lib.sh
source scripts/lib.sh

types=target/grafana_types
# This file is written last, so its presence means that everything is installed.
cmp --silent scripts/grafana_types/package-lock.json "$types/installed" && exit 0
say "fetching Grafana's types of dashboards"
mkdir -p "$types"
cp scripts/grafana_types/package.json scripts/grafana_types/package-lock.json "$types"
npm ci --prefix "$types" --ignore-scripts --no-audit --no-fund --loglevel=error </dev/null >&2
cp scripts/grafana_types/package-lock.json "$types/installed"
