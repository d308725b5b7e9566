#!/usr/bin/env bash
# The page in a real browser, against a real exporter and a real Redis: `scripts/test_page.sh`. With `pictures [MINUTES]` it
# makes docs/images/page-*.png of a longer run instead.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=scripts/lib.sh
source scripts/lib.sh

scripts/install_browser_packages.sh
for browser in "${CHROMIUM:-chromium}" chromium-browser google-chrome; do
  have "$browser" && break
done
CHROMIUM=$(command -v "$browser") || die "no Chromium: scripts/install.sh installs it, or set CHROMIUM to its path"
export CHROMIUM
cargo build --locked --quiet --bins --example lock_by_hand --example cordum_fleet
if [[ ${1:-} == pictures ]]; then
  cd tests/browser
  exec node pictures.js "${2:-20}"
fi
cd tests/browser
exec node --test --test-concurrency=1 --test-reporter=spec
