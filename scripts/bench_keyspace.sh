#!/usr/bin/env bash
# Measures the cost of watching Redis: passes compared with prometheus-redis-exporter, the share of
# Redis's time, tracking under load, and memory. Prints a table with PASS or FAIL for each limit and
# writes bench-data/keyspace.json. Exits with status 1 if a limit is exceeded.
#
#   BENCH_KEYS=900000     keys that are not locks
#   BENCH_LOCKS=100000    locks for the comparison
#   BENCH_RATE=5000       lock cycles per second while watching
#   BENCH_SECONDS=20      duration of the watching
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=scripts/lib.sh
source scripts/lib.sh
# shellcheck source=scripts/bench_lib.sh
source scripts/bench_lib.sh
export LC_ALL=C

keys=${BENCH_KEYS:-900000}
locks=${BENCH_LOCKS:-100000}
rate=${BENCH_RATE:-5000}
seconds=${BENCH_SECONDS:-20}
load=$target/examples/lock_load

scripts/install.sh bench
say "building"
cargo build --locked --release --bin redis_lock_exporter --example lock_load
mkdir -p "$data"
work=$(mktemp -d "$PWD/$data/keyspace.XXXXXX")
processes=()
trap 'kill "${processes[@]}" 2>/dev/null || true; rm -rf "$work"' EXIT

start_on_free_port "$work/redis.log" redis-server --port '{port}' --bind 127.0.0.1 --save '' --appendonly no --dir "$work" --daemonize no
redis_port=$port redis_pid=$pid
processes+=("$redis_pid")
redis() {
  redis-cli -p "$redis_port" "$@"
}
[[ $(redis ping 2>/dev/null) == PONG ]] || die "redis-server did not start: $(tail -n 3 "$work/redis.log")"

# redis_cpu: prints the CPU seconds that Redis has used so far.
redis_cpu() {
  redis info cpu | tr -d '\r' | awk -F : '$1 == "used_cpu_user" || $1 == "used_cpu_sys" { sum += $2 } END { printf "%.6f", sum }'
}

# commands_usec: prints the microseconds that Redis has spent in the commands that the exporter
# sends.
commands_usec() {
  redis info commandstats | tr -d '\r' |
    awk -F '[:=,]' '$1 ~ /^cmdstat_(scan|getrange|pttl|ping|info|type|hscan|zrange)$/ { sum += $5 } END { printf "%d", sum }'
}

# start_exporter YAML: starts an exporter on a free port and sets `exporter_port` and
# `exporter_pid`.
start_exporter() {
  printf 'redis:\n  url: redis://127.0.0.1:%s/0\npresets: [cordum]\n%s\n' "$redis_port" "$1" >"$work/config.yaml"
  start_on_free_port "$work/exporter.log" "$exporter" --config.file "$work/config.yaml" --web.listen-address '127.0.0.1:{port}'
  exporter_port=$port exporter_pid=$pid
  processes+=("$exporter_pid")
  wait_ready "$exporter_port" "$exporter_pid" 30 || die "the exporter did not start: $(tail -n 3 "$work/exporter.log")"
}

stop_exporter() {
  kill "$exporter_pid"
  wait "$exporter_pid" 2>/dev/null || true
}

scrape() {
  http_get "$exporter_port" /metrics
}

# wait_metric NAME CONDITION SECONDS: waits until the sum of NAME fulfills CONDITION (awk; the sum
# is `value`).
wait_metric() {
  local deadline=$((SECONDS + $3)) value
  while ((SECONDS < deadline)); do
    value=$(scrape | metric "$1")
    [[ $(awk -v value="${value:-0}" "BEGIN { print ($2) ? 1 : 0 }") == 1 ]] && return 0
    sleep 0.1
  done
  die "$1 is $value, waited for $2"
}

# scrape_cost: prints "BYTES SECONDS" of the median of 21 scrapes.
scrape_cost() {
  local index
  for ((index = 0; index < 21; index++)); do
    curl --silent --output "$work/scrape" --write-out '%{size_download} %{time_total}\n' "http://127.0.0.1:$exporter_port/metrics"
  done | sort -k 2 -n | awk '{ bytes[NR] = $1; time[NR] = $2 } END { print bytes[11], time[11] }'
}

pass_seconds() {
  scrape | metric redis_lock_exporter_scan_duration_seconds
}

# --- A pass over the complete keyspace, unpaced, compared with prometheus-redis-exporter.
say "filling Redis: $keys keys and $locks locks"
"$load" fill --port "$redis_port" --keys "$keys" --locks "$locks" >/dev/null
row "keys, of which locks" "$((keys + locks)), $locks" "" ""

say "prometheus-redis-exporter --check-keys"
start_on_free_port "$work/peer.log" prometheus-redis-exporter -redis.addr "redis://127.0.0.1:$redis_port" \
  -check-keys 'cordum:scheduler:job:*' -web.listen-address '127.0.0.1:{port}'
peer_port=$port
processes+=("$pid")
read -r peer_bytes peer_seconds < <(
  curl --silent --max-time 300 --output "$work/peer" --write-out '%{size_download} %{time_total}\n' "http://127.0.0.1:$peer_port/metrics"
)
peer_found=$(grep -c '^redis_key_size{' "$work/peer" || true)
((peer_found == locks)) || die "prometheus-redis-exporter showed $peer_found of $locks locks: it does not do the same work"
row "prometheus-redis-exporter, one scrape" "$peer_seconds s" "" ""
row "its scrape" "$(calc "$peer_bytes / 1e6") MB" "" ""

say "our pass, unpaced"
start_exporter $'scan: {max_redis_share: 1, interval: 2s}\nwatch: off'
wait_metric redis_lock_held "value == $locks" 60
wait_metric redis_lock_exporter_scan_passes_total 'value >= 3' 60
ours=$(pass_seconds)
row "our pass, unpaced" "$ours s" "" ""
ratio=$(calc "$peer_seconds / $ours")
row "faster than prometheus-redis-exporter" "$ratio x" ">= 10" "$ratio >= 10"
read -r bytes time < <(scrape_cost)
row "scrape during passes" "$(calc "$bytes / 1000") KB" "< 100" "$bytes < 100000"
row "time of a scrape" "$(calc "$time * 1000") ms" "< 5" "$time < 0.005"
stop_exporter

# --- A pass at the default pace.
say "a pass at the default pace"
start_exporter 'watch: off'
wait_metric redis_lock_exporter_scan_passes_total 'value >= 1' 300
before_usec=$(commands_usec)
before=$EPOCHREALTIME
wait_metric redis_lock_exporter_scan_passes_total 'value >= 3' 600
share=$(calc "($(commands_usec) - $before_usec) / 1e6 / ($EPOCHREALTIME - $before)")
row "our pass, default pace" "$(pass_seconds) s" "" ""
row "share of Redis's time, from commandstats" "$(calc "$share * 100") %" "<= 5" "$share <= 0.05"
stop_exporter

# --- Watching under load, on an otherwise empty Redis.
redis flushall >/dev/null
say "$rate lock cycles a second for $seconds s, nobody watching"
before=$(redis_cpu)
"$load" cycles --port "$redis_port" --rate "$rate" --seconds "$seconds" >"$work/alone.json"
alone=$(calc "($(redis_cpu) - $before) / $seconds")
say "the same, watched"
start_exporter ''
wait_metric redis_lock_exporter_tracking_up 'value == 1' 30
wait_metric redis_lock_exporter_scan_passes_total 'value >= 1' 30
before=$(redis_cpu)
exporter_before=$(scrape | metric process_cpu_seconds_total)
"$load" cycles --port "$redis_port" --rate "$rate" --seconds "$seconds" >"$work/watched.json"
watched=$(calc "($(redis_cpu) - $before) / $seconds")
cycles=$(awk -F '[:,]' '{ print $2 + 0 }' "$work/watched.json")
wait_metric redis_lock_releases_total "value >= $cycles * 0.999" 30
sleep 2
shown=$(scrape)
exporter_cpu=$(calc "($(metric process_cpu_seconds_total <<<"$shown") - $exporter_before) / $seconds")
acquisitions=$(metric redis_lock_acquisitions_total <<<"$shown")
releases=$(metric redis_lock_releases_total <<<"$shown")
dropped=$(calc "$(metric redis_lock_exporter_tracking_skipped_reads_total <<<"$shown") + $(metric redis_lock_exporter_tracking_overflows_total <<<"$shown")")
row "lock cycles" "$cycles" "" ""
row "acquisitions counted" "${acquisitions%.*}" "== cycles" "$acquisitions == $cycles"
row "releases counted" "${releases%.*}" "== cycles" "$releases == $cycles"
row "dropped" "${dropped%.*}" "== 0" "$dropped == 0"
row "CPU of Redis, not watched" "$(calc "$alone * 100") %" "" ""
row "CPU of Redis, watched" "$(calc "$watched * 100") %" "" ""
row "CPU of the exporter" "$(calc "$exporter_cpu * 100") %" "" ""
stop_exporter

# --- Growth with the number of locks.
for n_locks in 10000 100000 1000000; do
  redis flushall >/dev/null
  "$load" fill --port "$redis_port" --locks "$n_locks" >/dev/null
  say "$n_locks held locks"
  start_exporter 'scan: {max_redis_share: 1}'
  wait_metric redis_lock_held "value == $n_locks" 120
  memory=$(calc "$(scrape | metric process_resident_memory_bytes) / 1e6")
  read -r bytes time < <(scrape_cost)
  row "$n_locks locks: first pass, unpaced" "$(pass_seconds) s" "" ""
  row "$n_locks locks: memory" "$memory MB" "< 250" "$memory < 250"
  row "$n_locks locks: scrape" "$(calc "$bytes / 1000") KB" "< 100" "$bytes < 100000"
  row "$n_locks locks: time of a scrape" "$(calc "$time * 1000") ms" "< 5" "$time < 0.005"
  stop_exporter
done

write_results "$data/keyspace.json"
exit "$failed"
