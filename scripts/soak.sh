#!/usr/bin/env bash
# Do counts stay correct for hours? Runs the fault model of the keyspace side (every installation at once, one endless run each) together with
# the crash model of the log side (one seed after the other), and watches the exporter's memory.
#
# usage: scripts/soak.sh [HOURS]      default: 1; fractions such as 0.1 are fine. SEED=1 is the first seed.
#
# Prints events, faults and kills. The output stays in target/soak/. Exits with 1 if anything failed.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=scripts/lib.sh
source scripts/lib.sh

hours=${1:-1} first_seed=${SEED:-1}
seconds=$(awk -v hours="$hours" 'BEGIN { printf "%d", hours * 3600 }')
((seconds > 0)) || die "usage: scripts/soak.sh [HOURS]"
# Kills in one run of the crash model.
kills_per_run=60
output=$(realpath -m "${CARGO_TARGET_DIR:-target}")/soak
rm -rf "$output"
mkdir -p "$output"

integration() { cargo test --locked --quiet --test integration -- --nocapture "$@"; }

# crash_model: one run after the other until the time is over. The log of a run that passed is not kept.
crash_model() {
  local seed=$first_seed end=$((SECONDS + seconds))
  while ((SECONDS < end)); do
    MODEL_SEED=$seed integration --exact model::counters_equal_the_written_lines_after_random_actions_1 >"$output/crash.log" 2>&1 || {
      mv "$output/crash.log" "$output/crash-$seed.failed"
    }
    printf '%d\n' "$seed" >>"$output/crash.seeds"
    seed=$((seed + 1))
  done
}

scripts/install.sh test
cargo test --locked --no-run --test integration
say "running for $seconds s, output in $output"
crash_model &
crashes=$!
trap 'kill "$crashes" 2>/dev/null || true' EXIT
status=0
FAULT_SECONDS=$seconds FAULT_SEED=${SEED:-} integration --test-threads=5 fault_model::counts >"$output/faults.log" 2>&1 || status=1
wait "$crashes"
trap - EXIT

printf 'fault model of the keyspace side, each installation for %d s:\n' "$seconds"
grep -E '^(\S+: )?seed [0-9]+' "$output/faults.log" | sed 's/^/  /' || true
n_runs=$(wc -l <"$output/crash.seeds")
failed=("$output"/crash-*.failed)
[[ -e ${failed[0]} ]] || failed=()
printf 'crash model of the log side: %d runs with %d kills each, %d failed\n' "$n_runs" "$kills_per_run" "${#failed[@]}"
for log in "${failed[@]}"; do
  printf '  %s\n' "$log"
done
((status == 0 && ${#failed[@]} == 0))
