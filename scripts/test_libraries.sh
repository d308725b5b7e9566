#!/usr/bin/env bash
# Lock libraries themselves: replays what they printed, and runs them beside the exporter (docs/presets.md).
#
# `quick` (the default) runs a few of Python's and Node's; `all` every one that can be had here.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=scripts/lib.sh
source scripts/lib.sh

which=${1:-quick}
binary=${CARGO_TARGET_DIR:-target}/debug/redis_lock_exporter
[[ -x $binary ]] || cargo build --locked --bin redis_lock_exporter
scripts/install_libraries.sh "$which"
say "recorded logs of lock libraries, in every wrapping"
python3 tests/libraries/check_fixtures.py "$binary"
say "lock libraries beside the exporter"
if [[ $which == all ]]; then
  python3 tests/libraries/conduct.py live "$binary"
else
  python3 tests/libraries/conduct.py live "$binary" --quick
fi
