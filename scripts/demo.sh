#!/usr/bin/env bash
# Builds the exporter and runs `redis_lock_exporter demo`: everything on this machine, with an incident. Meanwhile it installs redis-server,
# Prometheus and Alertmanager where they are missing; without the last two there are no alerts to see. The tests use the same build.
#
#   DEMO_FLAGS='--speed 20 --incident slow-network'   flags of the command; `redis_lock_exporter demo --help` lists them
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=scripts/lib.sh
source scripts/lib.sh

target=${CARGO_TARGET_DIR:-target}
mkdir -p "$target"
scripts/install.sh demo >"$target/install.log" 2>&1 &
installing=$!
# Nothing can be built before there is a linker.
have cc || wait "$installing" || true
say "building (two minutes the first time), and installing what is missing"
cargo build --locked --bin redis_lock_exporter
wait "$installing" || {
  cat "$target/install.log" >&2
  exit 2
}
grep '^==>' "$target/install.log" >&2 || true
read -ra flags <<<"${DEMO_FLAGS:-}"
exec "$target/debug/redis_lock_exporter" demo "${flags[@]}"
