#!/usr/bin/env bash
# Builds the exporter and runs `redis_lock_exporter demo`: everything on this machine, with an incident. Installs redis-server,
# Prometheus and Alertmanager first where they are missing and can be had; without the last two there are no alerts to see.
#
#   DEMO_FLAGS='--speed 20 --incident slow-network'   flags for the command; `redis_lock_exporter demo --help` lists them
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=scripts/lib.sh
source scripts/lib.sh

scripts/install.sh demo
say "building (the first time takes a few minutes)"
cargo build --locked --release --bin redis_lock_exporter
read -ra flags <<<"${DEMO_FLAGS:-}"
exec "${CARGO_TARGET_DIR:-target}/release/redis_lock_exporter" demo "${flags[@]}"
