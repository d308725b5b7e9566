#!/usr/bin/env bash
# Do the tests pass on a busy machine? Runs `make test` again and again with busy loops beside it, and prints what failed, by test name.
#
# usage: scripts/repeat_tests.sh [TIMES] [STEP...]      default: 10 times, every step of `make test`; BUSY=4 loops
#
# The output of each run stays in target/repeat/. Exits with 1 if anything failed.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=scripts/lib.sh
source scripts/lib.sh

times=${1:-10} n_busy=${BUSY:-4}
shift $(($# > 0 ? 1 : 0))
output=$(realpath -m "${CARGO_TARGET_DIR:-target}")/repeat
rm -rf "$output"
mkdir -p "$output"
loops=()
trap 'kill "${loops[@]}" 2>/dev/null || true' EXIT

# failures FILE: the names of tests and steps that failed.
failures() {
  sed -nE \
    -e 's/^test (\S+) \.\.\. FAILED.*/\1/p' \
    -e 's/^✖ (.+) \([0-9.]+ms\)$/page: \1/p' \
    -e 's/^FAILED: (.*)/rules: \1/p' \
    -e 's/^==> (\S+): FAILED.*/step \1/p' "$1" | sort -u
}

# Nothing is compiled beside the loops, so that the runs differ in the tests alone.
scripts/test.sh test format >"$output/build.log" 2>&1 || die "the build failed, see $output/build.log"
for ((loop = 0; loop < n_busy; loop++)); do
  (while :; do :; done) &
  loops+=("$!")
done
for ((number = 1; number <= times; number++)); do
  started=$SECONDS
  # Rules whose tests passed are tested again, too.
  RULES_AGAIN=1 scripts/test.sh test "$@" >"$output/$number.log" 2>&1 || true
  failures "$output/$number.log" >"$output/$number.failed"
  say "run $number of $times: $(tail -n 1 "$output/$number.log"), $((SECONDS - started)) s"
done
printf '%d runs beside %d busy loops; failures by name:\n' "$times" "$n_busy"
sort "$output"/*.failed | uniq -c | sort -rn | grep . || printf '  none\n'
[[ -z $(cat "$output"/*.failed) ]]
