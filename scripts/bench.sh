#!/usr/bin/env bash
# Runs the benchmarks: ratios from one run on one machine, which should be otherwise idle. Exits
# with status 1 if a limit is exceeded.
#
#   BENCH_ONLY=logs|keyspace|peers   only one part; `peers` is only mtail and ripgrep
set -euo pipefail
cd "$(dirname "$0")/.."

failed=0
if [[ ${BENCH_ONLY:-} != keyspace ]]; then
  bash scripts/bench_logs.sh || failed=1
fi
if [[ ${BENCH_ONLY:-} != logs && ${BENCH_ONLY:-} != peers ]]; then
  bash scripts/bench_keyspace.sh || failed=1
fi
exit "$failed"
