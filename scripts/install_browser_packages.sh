#!/usr/bin/env bash
# The npm packages of the browser tests, as tests/browser/package-lock.json pins them, beside those tests. Does nothing, and
# needs no network, when they are there.
set -euo pipefail
cd "$(dirname "$0")/../tests/browser"
# shellcheck source=scripts/lib.sh
source ../../scripts/lib.sh

installed=node_modules/.of-this-lock-file
if cmp --silent package-lock.json "$installed"; then
  exit 0
fi
have npm || die "npm is missing: install Node 20 or newer with npm, or run scripts/install.sh"
say "installing the packages of the browser tests"
npm ci --ignore-scripts --no-audit --no-fund --loglevel=error </dev/null >&2
cp package-lock.json "$installed"
