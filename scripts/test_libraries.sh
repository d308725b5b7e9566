#!/usr/bin/env bash
# Tests with real lock libraries: replays their recorded logs, and runs every library that is
# available here together with the exporter (docs/presets.md).
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=scripts/lib.sh
source scripts/lib.sh

cargo build --locked --quiet --bin redis_lock_exporter
binary=$(realpath "${CARGO_TARGET_DIR:-target}")/debug/redis_lock_exporter
scripts/install_libraries.sh
say "recorded logs of lock libraries, in every wrapping"
python3 tests/libraries/check_fixtures.py "$binary"
say "lock libraries beside the exporter"
python3 tests/libraries/conduct.py live "$binary"
