#!/usr/bin/env bash
# Installs the commands that are missing for one of: quick, test, all (the sizes of scripts/test.sh), demo, bench.
#
# Does nothing, and needs no network, when they are there. On Debian and Ubuntu they come from apt-get, as root or with sudo; elsewhere this
# says what to install and stops. It never installs Rust: people have opinions about where their toolchain comes from.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=scripts/lib.sh
source scripts/lib.sh

have cargo || die "cargo is missing: install Rust from https://rustup.rs (or your distribution), 1.90 or newer"

size=${1:-test}
# command:package. Without those in `optional` less is shown or tested, and a line says so.
wanted=(redis-server:redis-server) optional=()
case $size in
  quick | test | all)
    wanted+=(shellcheck:shellcheck cc:gcc python3:python3 openssl:openssl curl:curl promtool:prometheus systemd-analyze:systemd)
    ;;&
  test | all)
    wanted+=(prometheus:prometheus amtool:prometheus-alertmanager redis-cli:redis-tools redis-sentinel:redis-sentinel jq:jq node:nodejs npm:npm)
    # Writes journal files for journalctl to read.
    wanted+=(journalctl:systemd /lib/systemd/systemd-journal-remote:systemd-journal-remote)
    # Makes the clock of a process step. Without it, that fault is left out.
    optional+=("$(compgen -G '/usr/lib/*/faketime/libfaketimeMT.so.1' || printf libfaketime):libfaketime")
    # Any Chromium will do. It needs letters to draw.
    have chromium-browser || have google-chrome || wanted+=(chromium:chromium)
    wanted+=(/usr/share/fonts/truetype/dejavu:fonts-dejavu-core)
    ;;&
  all)
    # A Debian to install the package on, and what inspects the package: scripts/test_deb.sh.
    wanted+=(mmdebstrap:mmdebstrap systemd-nspawn:systemd-container lintian:lintian)
    ;;
  demo)
    wanted+=(cc:gcc)
    optional+=(prometheus:prometheus)
    have alertmanager || optional+=(prometheus-alertmanager:prometheus-alertmanager)
    ;;
  bench)
    wanted+=(mtail:mtail rg:ripgrep /usr/bin/time:time cc:gcc curl:curl prometheus-redis-exporter:prometheus-redis-exporter)
    ;;
  quick | test) ;;
  *) die "usage: scripts/install.sh [quick|test|all|demo|bench]" ;;
esac

# absent NAME ENTRY...: sets the array NAME to the packages of the entries that are not there.
absent() {
  local -n packages=$1
  local entry
  shift
  packages=()
  for entry in "$@"; do
    have "${entry%%:*}" || [[ -e ${entry%%:*} ]] || packages+=("${entry##*:}")
  done
}

# without WHY: names what goes without the packages that are missing.
without() {
  say "not installed$1, so the ${size} goes without (names as in Debian): ${nice_to_have[*]}"
}

missing=() nice_to_have=()
absent missing "${wanted[@]}"
absent nice_to_have "${optional[@]}"
if ((${#missing[@]} + ${#nice_to_have[@]})); then
  as_root=()
  if ! have apt-get; then
    ((${#missing[@]} == 0)) || die "please install these and try again (names as in Debian): ${missing[*]} ${nice_to_have[*]}"
    without ""
    nice_to_have=()
  elif ((EUID)) && have sudo; then
    as_root=(sudo)
  elif ((EUID)); then
    ((${#missing[@]} == 0)) || die "please install these as root and try again: apt-get install ${missing[*]} ${nice_to_have[*]}"
    without ", which takes root"
    nice_to_have=()
  fi
fi

export DEBIAN_FRONTEND=noninteractive
install=("${as_root[@]}" apt-get install --yes --quiet --no-install-recommends)

# Debian's packages start their daemons on installation. We want promtool, not a Prometheus on port 9090 of somebody's machine, so a policy that
# refuses to start services is in place meanwhile, unless the machine has a policy already.
start_no_services() {
  local policy=/usr/sbin/policy-rc.d
  [[ ! -e $policy ]] || return 0
  trap '"${as_root[@]}" rm -f /usr/sbin/policy-rc.d' EXIT
  printf '#!/bin/sh\nexit 101\n' | "${as_root[@]}" tee "$policy" >/dev/null
  "${as_root[@]}" chmod 755 "$policy"
}

# install_packages NAME...
install_packages() {
  say "installing $*"
  # A fresh container has no package lists; a used one may have outdated ones. Only then is an update needed.
  "${install[@]}" "$@" </dev/null >&2 || {
    "${as_root[@]}" apt-get update --quiet </dev/null >&2
    "${install[@]}" "$@" </dev/null >&2
  }
}

if ((${#missing[@]} + ${#nice_to_have[@]})); then
  start_no_services
  ((${#missing[@]} == 0)) || install_packages "${missing[@]}"
  ((${#nice_to_have[@]} == 0)) || install_packages "${nice_to_have[@]}" ||
    without " because this machine's packages do not have it"
fi
# The integration tests push logs with real clients.
if [[ $size == test || $size == all ]]; then
  node_project tests/clients >/dev/null
fi
