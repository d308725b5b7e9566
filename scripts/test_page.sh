#!/usr/bin/env bash
# Tests the page in a real browser, with a real exporter and a real Redis.
#
#   scripts/test_page.sh                     all tests
#   scripts/test_page.sh smoke               a few: an incident, a lock, its history, both colors
#   scripts/test_page.sh pictures [MINUTES]  makes docs/images/page-*.png from a longer run instead
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=scripts/lib.sh
source scripts/lib.sh

CHROMIUM=$(command -v "${CHROMIUM:-chromium}" || command -v chromium-browser || command -v google-chrome) ||
  die "no Chromium: scripts/install.sh installs it, or set CHROMIUM to its path"
tests=$(node_project tests/browser)
cargo build --locked --quiet --bins --example lock_by_hand --example cordum_fleet
EXPORTER=$(realpath "${CARGO_TARGET_DIR:-target}")/debug/redis_lock_exporter
IMAGES=$PWD/docs/images
export CHROMIUM EXPORTER IMAGES
cd "$tests"
case ${1:-} in
  pictures) exec node pictures.js "${2:-20}" ;;
  smoke) set -- --test-name-pattern '^(nothing happened yet|the incident comes first|search finds|the timeline shows|nothing was logged)' ;;
esac
exec node --test --test-concurrency=1 --test-reporter=spec "$@"
