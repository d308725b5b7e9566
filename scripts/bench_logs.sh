#!/usr/bin/env bash
# Measures the speed of log reading, as ratios from one run on one machine: `replay` compared with
# mtail and ripgrep, the daemon compared with `replay`. Prints a table with PASS or FAIL for each
# limit and writes bench-data/logs.json. Exits with status 1 if a limit is exceeded.
#
#   BENCH_BYTES=1000000000  size of the log
#   BENCH_RUNS=5            runs of each fast program; the table shows medians
#   BENCH_MTAIL_RUNS=1      runs of mtail, each of which takes half a minute
#   BENCH_ONLY=peers        only mtail and ripgrep
#
# There are two logs: JSON lines of Cordum's services, and Java stack traces, which the presets for
# libraries must process.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=scripts/lib.sh
source scripts/lib.sh
# shellcheck source=scripts/bench_lib.sh
source scripts/bench_lib.sh
export LC_ALL=C

bytes=${BENCH_BYTES:-1000000000}
runs=${BENCH_RUNS:-5}
mtail_runs=${BENCH_MTAIL_RUNS:-1}
log=$data/log-$bytes.json
truth=$data/truth-$bytes.json

# truth_number AWK_PATTERN: sums the numbers in the matching lines of the truth (pretty-printed
# JSON, one pair per line).
truth_number() {
  awk -F ': ' "$1"' { sub(/,$/, "", $NF); sum += $NF } END { printf "%d", sum }' "$truth"
}

# seconds_of COMMAND...: prints wall-clock seconds. The command's output goes to
# bench-data/last.out.
seconds_of() {
  local begin=$EPOCHREALTIME
  "$@" >"$data/last.out" 2>"$data/last.err" </dev/null || {
    tail -n 5 "$data/last.err" >&2
    die "failed: $*"
  }
  calc "$EPOCHREALTIME - $begin"
}

# median_of RUNS COMMAND...: prints the median of the seconds.
median_of() {
  local n=$1 index
  shift
  for ((index = 0; index < n; index++)); do
    seconds_of "$@" || return
    printf '\n'
  done | sort -n | awk '{ value[NR] = $1 } END { print NR % 2 ? value[(NR + 1) / 2] : (value[NR / 2] + value[NR / 2 + 1]) / 2 }'
}

# Port 0: mtail listens even with --one_shot, and its default port may be taken.
mtail=(mtail --one_shot --one_shot_format prometheus --address 127.0.0.1 --port 0 --logs "$log" --progs benches/mtail)
rg=(rg --no-config --count --fixed-strings --file benches/literals.txt "$log")
rg_preset=(rg --no-config --count --fixed-strings --file benches/preset_literals.txt "$log")
replay=("$exporter" replay --preset cordum --output metrics "$log")
replay_all=("$exporter" replay --output metrics "$log")
for preset in presets/*.yaml; do
  # generic.yaml is not a preset: its rules are always active.
  [[ $preset == */generic.yaml ]] || replay_all+=(--preset "$(basename "$preset" .yaml)")
done

java_log=$data/java-$bytes.log
java_text='attempt to unlock lock, not locked by current thread by node id'
rg_java=(rg --no-config --count --fixed-strings "$java_text" "$java_log")
replay_java=("${replay_all[@]/$log/$java_log}")

# java_traces: writes a log of about $bytes bytes of stack traces. One in a thousand is about a
# lock. Prints how many are.
java_traces() {
  awk -v bytes="$bytes" -v text="$java_text" 'BEGIN {
    for (number = 0; written < bytes; number++) {
      is_lock = number % 1000 == 999
      trace = sprintf("2026-06-25 13:37:%02d.%03d ERROR 1 --- [pool-%d] app.Billing : cannot finish invoice %d\n\n", \
        number / 1000 % 60, number % 1000, number % 16, number)
      error = is_lock ? "java.lang.IllegalMonitorStateException: " text ": 6f0c27f4-0c5b-4c1e-9d0a-3b8f1e2a7c55 thread-id: " number \
                      : "java.lang.IllegalStateException: invoice " number " is closed"
      trace = trace "java.util.concurrent.CompletionException: " error "\n"
      for (frame = 0; frame < 24; frame++)
        trace = trace "\tat org.example.billing.stage" frame ".Handler.process(Handler.java:" 100 + frame ") ~[app.jar:1.0]\n"
      trace = trace "Caused by: " error "\n\tat org.example.billing.Lock.unlock(Lock.java:7)\n\t... 24 common frames omitted\n\n"
      printf "%s", trace > "'"$java_log"'"
      written += length(trace)
      locks += is_lock
    }
    print locks
  }'
}

# daemon_run: prints "SECONDS PEAK_KB" of a daemon with an empty state that reads the log from its
# beginning.
daemon_run() {
  local dir port pid answer='' lines=0 deadline
  dir=$(mktemp -d "$data/daemon.XXXXXX")
  mkdir "$dir/state"
  printf 'logs:\n  - path: %s\n    start_at: beginning\npresets: [cordum]\n' "$PWD/$log" >"$dir/config.yaml"
  start_on_free_port "$dir/log" "$exporter" --config.file "$dir/config.yaml" --state.dir "$dir/state" --web.listen-address "127.0.0.1:{port}"
  daemon_pid=$pid
  deadline=$((SECONDS + 120))
  while ((${lines%.*} < n_lines)); do
    if ((SECONDS > deadline)) || ! kill -0 "$pid" 2>/dev/null; then
      tail -n 5 "$dir/log" >&2
      kill "$pid" 2>/dev/null || true
      die "the daemon did not read all $n_lines lines (it read ${lines%.*})"
    fi
    # Ask rarely: each scrape takes time from the daemon, and its metrics contain the time when it
    # finished.
    sleep 1
    answer=$(http_get "$port" /metrics 2>/dev/null) || continue
    lines=$(metric redis_lock_exporter_log_lines_total <<<"$answer")
    lines=${lines:-0}
  done
  # The daemon publishes numbers only after it saved them, once a second. So the result is measured
  # with the daemon's own clock: from the start of its process to its last read.
  local started last_read
  started=$(metric redis_lock_exporter_start_time_seconds <<<"$answer")
  last_read=$(metric redis_lock_exporter_log_last_read_timestamp_seconds <<<"$answer")
  [[ $started && $last_read ]] || die "the daemon's metrics lack its start or its last read"
  printf '%s %s\n' "$(calc "$last_read - $started")" "$(awk '/^VmHWM/ { print $2 }' "/proc/$pid/status")"
  kill "$pid"
  wait "$pid" 2>/dev/null || true
  rm -rf "$dir"
}

scripts/install.sh bench
mkdir -p "$data"
daemon_pid=''
trap '[[ ! $daemon_pid ]] || kill "$daemon_pid" 2>/dev/null || true; rm -rf "$data"/daemon.*' EXIT

say "building"
cargo build --locked --release --bin redis_lock_exporter --example cordum_logs
if [[ ! -e $log || ! -e $truth || $target/examples/cordum_logs -nt $log ]]; then
  say "generating $log"
  # Logs of other sizes take 1 GB each and displace this log from the page cache.
  rm -f "$data"/log-*.json "$data"/truth-*.json
  "$target/examples/cordum_logs" bench --bytes "$bytes" --event-share 0.001 --seed 1 --output "$log" --truth "$truth"
fi
cat "$log" >/dev/null  # warm the page cache for all programs
n_lines=$(truth_number '/^  "lines"/')
row "log" "$(calc "$bytes / 1e9") GB" "" ""
row "lines" "$n_lines" "" ""

say "ripgrep, $runs runs"
rg_seconds=$(median_of "$runs" "${rg[@]}")
row "rg -c" "$rg_seconds s" "" ""
row "rg -c, every literal of the Cordum preset" "$(median_of "$runs" "${rg_preset[@]}") s" "" ""

say "mtail, $mtail_runs runs"
mtail_seconds=$(median_of "$mtail_runs" "${mtail[@]}")
row "mtail" "$mtail_seconds s" "" ""
# The comparison is valid only if mtail did the same work. mtail counts lines, so its counts are
# compared with lines: token mismatches; renewals that found the lock not owned (without the third
# renewal of an abandoned lock, which is part of the abandonment's line); abandonments.
counted="$(metric lock_token_mismatch_total <"$data/last.out") $(metric lock_renewal_failed_total <"$data/last.out") $(metric lock_abandoned_total <"$data/last.out")"
abandoned=$(truth_number '/redis_lock_abandonments_total/')
renewals=$(truth_number '/redis_lock_renewal_failures_total.*not_owned/')
expected="$(truth_number '/"lock release skipped: token mismatch"/').000 $((renewals - abandoned)).000 $abandoned.000"
[[ $counted == "$expected" ]] || die "mtail counted $counted, expected $expected: it does not do the same work"

if [[ ${BENCH_ONLY:-} != peers ]]; then
  say "replay, $runs runs"
  replay_seconds=$(median_of "$runs" "${replay[@]}")
  row "replay" "$replay_seconds s" "" ""
  "$target/examples/cordum_logs" compare --truth "$truth" --metrics "$data/last.out" >"$data/compare.txt" || {
    cat "$data/compare.txt"
    die "replay did not count the truth, its speed means nothing"
  }
  /usr/bin/time --format '%M' --output "$data/replay.rss" "${replay[@]}" >/dev/null
  replay_mb=$(calc "$(tail -n 1 "$data/replay.rss") / 1000")

  replay_all_seconds=$(median_of "$runs" "${replay_all[@]}")
  row "replay, every preset" "$replay_all_seconds s" "" ""

  if [[ ! -e $java_log || ! -e $java_log.locks ]]; then
    say "generating $java_log"
    rm -f "$data"/java-*
    java_traces >"$java_log.locks"
  fi
  cat "$java_log" >/dev/null
  rg_java_seconds=$(median_of "$runs" "${rg_java[@]}")
  row "rg -c, Java stack traces" "$rg_java_seconds s" "" ""
  replay_java_seconds=$(median_of "$runs" "${replay_java[@]}")
  row "replay, every preset, Java stack traces" "$replay_java_seconds s" "" ""
  # Each trace contains the text twice and is one failure. Without a preset that knows the text
  # nothing is counted.
  if grep --quiet --fixed-strings "$java_text" presets/*.yaml; then
    counted=$(metric redis_lock_not_owned_total <"$data/last.out")
    [[ $counted == "$(<"$java_log.locks").000" ]] ||
      die "replay counted $counted of $(<"$java_log.locks") lost locks in stack traces, its speed means nothing"
  fi

  say "daemon, $runs runs"
  for ((index = 0; index < runs; index++)); do
    # Not in a subshell, because the trap needs the process id.
    daemon_run >>"$data/daemon.$$"
  done
  daemon_seconds=$(sort -n "$data/daemon.$$" | awk '{ value[NR] = $1 } END { print value[int((NR + 1) / 2)] }')
  daemon_mb=$(awk '$2 > peak { peak = $2 } END { printf "%.3f", peak / 1000 }' "$data/daemon.$$")
  row "daemon catching up" "$daemon_seconds s" "" ""

  ratio=$(calc "$mtail_seconds / $replay_seconds")
  row "replay faster than mtail" "$ratio x" ">= 60" "$ratio >= 60"
  ratio=$(calc "$replay_seconds / $rg_seconds")
  row "replay slower than rg -c" "$ratio x" "<= 2" "$ratio <= 2"
  ratio=$(calc "$replay_all_seconds / $rg_seconds")
  row "replay, every preset, slower than rg -c" "$ratio x" "<= 4" "$ratio <= 4"
  ratio=$(calc "$replay_java_seconds / $rg_java_seconds")
  row "replay, Java stack traces, slower than rg -c" "$ratio x" "<= 8" "$ratio <= 8"
  ratio=$(calc "$daemon_seconds / $replay_seconds")
  row "daemon slower than replay" "$ratio x" "<= 1.3" "$ratio <= 1.3"
  row "peak memory of replay" "$replay_mb MB" "< 30" "$replay_mb < 30"
  row "peak memory of the daemon" "$daemon_mb MB" "< 30" "$daemon_mb < 30"
fi

write_results "$data/logs.json"
exit "$failed"
