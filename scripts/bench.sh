#!/usr/bin/env bash
# Speed, as ratios taken in one run on one machine; wants the machine for itself. Exit code 1 when a bar is missed.
#
#   BENCH_ONLY=logs|keyspace|peers   only one part; `peers` is mtail and ripgrep alone
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
