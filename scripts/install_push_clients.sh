#!/usr/bin/env bash
# Clients of Loki's push protocol, as tests/clients/package-lock.json pins them, for the tests that push with them.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=scripts/lib.sh
source scripts/lib.sh
install_locked_packages tests/clients "the clients that push logs"
