#!/usr/bin/env bash
# Installs the commands that `make test` (or, with `bench`, `make bench`) needs and that are missing.
#
# Does nothing, and needs no network, when all of them are there. On Debian and Ubuntu they come from apt-get, as root or
# with sudo; elsewhere this says what to install and stops. Rust itself is never installed here: people have opinions
# about where their toolchain comes from.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=scripts/lib.sh
source scripts/lib.sh

# command:package
case ${1:-test} in
  test) wanted=(promtool:prometheus shellcheck:shellcheck cc:gcc) ;;
  bench) wanted=(mtail:mtail rg:ripgrep /usr/bin/time:time cc:gcc) ;;
  *) die "usage: scripts/install.sh [test|bench]" ;;
esac

have cargo || die "cargo is missing: install Rust from https://rustup.rs (or your distribution), 1.90 or newer"

missing=()
for entry in "${wanted[@]}"; do
  have "${entry%%:*}" || missing+=("${entry##*:}")
done
((${#missing[@]})) || exit 0

if ! have apt-get; then
  die "please install these and try again (names as in Debian): ${missing[*]}"
fi
if ((EUID == 0)); then
  as_root=()
elif have sudo; then
  as_root=(sudo)
else
  die "please install these as root and try again: apt-get install ${missing[*]}"
fi

say "installing ${missing[*]}"
export DEBIAN_FRONTEND=noninteractive
# Debian's packages start their daemons on installation. We want promtool, not a Prometheus on port 9090 of somebody's
# machine, so a policy that refuses to start services is in place for as long as this takes, unless one is there already.
policy=/usr/sbin/policy-rc.d
if [[ ! -e $policy ]]; then
  trap '"${as_root[@]}" rm -f "$policy"' EXIT
  printf '#!/bin/sh\nexit 101\n' | "${as_root[@]}" tee "$policy" >/dev/null
  "${as_root[@]}" chmod 755 "$policy"
fi
install=("${as_root[@]}" apt-get install --yes --quiet --no-install-recommends "${missing[@]}")
# A fresh container has no package lists; a used one may have outdated ones. Only then is an update needed.
"${install[@]}" </dev/null >&2 || {
  "${as_root[@]}" apt-get update --quiet </dev/null >&2
  "${install[@]}" </dev/null >&2
}
