#!/usr/bin/env bash
# Fetches promtool of newer Prometheus versions for scripts/test_rules.sh: packages of other Debian
# releases, unpacked into a cache directory and not installed.
#
# usage: scripts/install_promtools.sh [DIRECTORY]      (default: target/promtool)
#
# Prints nothing on success. Without apt-get or the network it prints a message and keeps what is
# there. A package that is already there is not fetched again.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=scripts/lib.sh
source scripts/lib.sh

cache=$(realpath -m "${1:-target/promtool}")
# Since trixie, promtool is a separate package.
for release in trixie sid; do
  [[ -x $cache/$release/usr/bin/promtool ]] && continue
  if ! scripts/unpack_debian.sh "$release" promtool "$cache/$release" || ! "$cache/$release/usr/bin/promtool" --version >/dev/null 2>&1; then
    say "promtool of Debian $release cannot be had, going on without"
    rm -rf "${cache:?}/$release"
  fi
done
