#!/usr/bin/env bash
# A generator writes the logs of three services, rotates them in three ways and keeps a record of the truth; the exporter
# counts. Half way the exporter is killed with -9 and started again: the counters go on.
#
#   DEMO_SECONDS=20  ends by itself; exit code 0 only if the exporter's counts equal the truth (0: until Ctrl-C)
#   DEMO_PORT=9877   first port to try
#   DEMO_RATE=300    lines a second
#   KEEP=1           leaves the directory with logs and state behind
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=scripts/lib.sh
source scripts/lib.sh

seconds=${DEMO_SECONDS:-0}
rate=${DEMO_RATE:-300}
[[ $seconds =~ ^[0-9]+$ && $rate =~ ^[1-9][0-9]*$ ]] || die "DEMO_SECONDS and DEMO_RATE are whole numbers"

say "building (the first time takes a few minutes)"
cargo build --locked --release --bin redis_lock_exporter --example cordum_logs
target=${CARGO_TARGET_DIR:-target}/release
exporter=${DEMO_EXPORTER:-$target/redis_lock_exporter}
generator=$target/examples/cordum_logs

dir=$(mktemp -d "${TMPDIR:-/tmp}/redis_lock_exporter-demo.XXXXXX")
exporter_pid='' generator_pid=''

# shellcheck disable=SC2317,SC2329  # called by the trap below
clean_up() {
  trap - EXIT INT TERM
  local pid
  for pid in $generator_pid $exporter_pid; do
    kill "$pid" 2>/dev/null || true
  done
  for pid in $generator_pid $exporter_pid; do
    wait "$pid" 2>/dev/null || true
  done
  if [[ ${KEEP:-} ]]; then
    say "kept $dir"
  else
    rm -rf "$dir"
  fi
}
trap clean_up EXIT
# Ctrl-C is the normal end of a demo without DEMO_SECONDS.
trap 'printf "\n"; exit $((seconds > 0 ? 130 : 0))' INT TERM

start_exporter() {
  "$exporter" --logs.path "$dir/logs/*.log" --preset cordum --state.dir "$dir/state" \
    --web.listen-address "127.0.0.1:$port" >>"$dir/exporter.log" 2>&1 &
  exporter_pid=$!
  wait_ready "$port" "$exporter_pid" 20 || {
    tail -n 20 "$dir/exporter.log" >&2
    die "the exporter did not get ready"
  }
}

compare() {
  "$generator" compare --truth "$dir/truth.json" --metrics "127.0.0.1:$port"
}

port=$(free_port "${DEMO_PORT:-9877}")
mkdir "$dir/logs" "$dir/state"
start_exporter
say "open http://127.0.0.1:$port/ or http://127.0.0.1:$port/metrics (logs and state are in $dir)"
"$generator" live --dir "$dir" --rate "$rate" --seconds "$seconds" &
generator_pid=$!
((seconds)) || say "Ctrl-C ends it"

begin=$SECONDS
kill_at=$((seconds ? seconds / 2 : 12))
while kill -0 "$generator_pid" 2>/dev/null; do
  # In small steps, and in the background, so that Ctrl-C and the end are noticed at once.
  for _ in {1..6}; do
    sleep 0.5 &
    wait $!
    kill -0 "$generator_pid" 2>/dev/null || break
  done
  if ((kill_at && SECONDS - begin >= kill_at)); then
    kill_at=0
    say "kill -9 of the exporter, and a new start: the counters go on where they were"
    kill -9 "$exporter_pid"
    wait "$exporter_pid" 2>/dev/null || true
    start_exporter
  fi
  kill -0 "$exporter_pid" 2>/dev/null || {
    tail -n 20 "$dir/exporter.log" >&2
    die "the exporter ended by itself"
  }
  printf '\n%s after %s s; * = not counted yet\n' "$(date +%T)" $((SECONDS - begin))
  compare || true
done
wait "$generator_pid" || die "the generator failed"
generator_pid=''

# What was written last may still be on its way: the exporter shows a number only when it is on disk.
say "the generator is done; the exporter has 15 s to show the last lines"
for ((try = 0; try < 30; try++)); do
  if compare >"$dir/verdict"; then
    cat "$dir/verdict"
    say "PASS: every count equals the truth"
    exit 0
  fi
  sleep 0.5
done
cat "$dir/verdict"
say "FAIL: the lines with * differ from the truth"
exit 1
