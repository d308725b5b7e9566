#!/usr/bin/env bash
# The npm packages of the browser tests, as tests/browser/package-lock.json pins them, beside those tests.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=scripts/lib.sh
source scripts/lib.sh
install_locked_packages tests/browser "the packages of the browser tests"
