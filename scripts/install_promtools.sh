#!/usr/bin/env bash
# Fetches promtool of newer Prometheus generations for scripts/test_rules.sh: Debian's packages of other releases, unpacked
# into a cache directory and never installed.
#
# usage: scripts/install_promtools.sh [DIRECTORY]      (default: target/promtool; prints nothing on success)
#
# Best effort: without apt-get or the network it says so and leaves what is there. A package that is there is not fetched again.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=scripts/lib.sh
source scripts/lib.sh

cache=$(realpath -m "${1:-target/promtool}")
# From trixie on promtool is a package of its own.
for release in trixie sid; do
  [[ -x $cache/$release/usr/bin/promtool ]] && continue
  if ! scripts/unpack_debian.sh "$release" promtool "$cache/$release" || ! "$cache/$release/usr/bin/promtool" --version >/dev/null 2>&1; then
    say "promtool of Debian $release cannot be had, going on without"
    rm -rf "${cache:?}/$release"
  fi
done
