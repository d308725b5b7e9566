#!/usr/bin/env bash
# Installs the commands that `make test` (or, with `bench` or `demo`, `make bench` or `make demo`) needs and that are missing.
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
  test)
    wanted=(promtool:prometheus prometheus:prometheus amtool:prometheus-alertmanager shellcheck:shellcheck cc:gcc python3:python3)
    wanted+=(redis-server:redis-server redis-cli:redis-tools redis-sentinel:redis-sentinel openssl:openssl curl:curl jq:jq)
    wanted+=(node:nodejs npm:npm)
    wanted+=(systemd-analyze:systemd)
    # A Debian to install the package on, and who looks at the package: scripts/test_deb.sh.
    wanted+=(mmdebstrap:mmdebstrap systemd-nspawn:systemd-container lintian:lintian)
    # Writes journal files for journalctl to read.
    wanted+=(journalctl:systemd /lib/systemd/systemd-journal-remote:systemd-journal-remote)
    ;;
  bench)
    wanted=(mtail:mtail rg:ripgrep /usr/bin/time:time cc:gcc curl:curl)
    wanted+=(redis-server:redis-server prometheus-redis-exporter:prometheus-redis-exporter)
    ;;
  demo)
    wanted=(redis-server:redis-server)
    ;;
  *) die "usage: scripts/install.sh [test|bench|demo]" ;;
esac

have cargo || die "cargo is missing: install Rust from https://rustup.rs (or your distribution), 1.90 or newer"

missing=()
for entry in "${wanted[@]}"; do
  have "${entry%%:*}" || [[ -d ${entry%%:*} ]] || missing+=("${entry##*:}")
done
# For the tests of the page: any Chromium will do, and it needs letters to draw.
if [[ ${1:-test} == test ]]; then
  have chromium || have google-chrome || missing+=(chromium)
  [[ -e /usr/share/fonts/truetype/dejavu/DejaVuSans.ttf ]] || missing+=(fonts-dejavu-core)
fi
# Nice to have: a test says that it was skipped where it is not there.
wants_valkey=false
if [[ ${1:-test} == test ]] && ! have valkey-server; then
  wants_valkey=true
fi
# Nice to have: the demo shows alerts with them, and says so where they are not there.
optional=()
if [[ ${1:-test} == demo ]]; then
  have prometheus || optional+=(prometheus)
  have prometheus-alertmanager || have alertmanager || optional+=(prometheus-alertmanager)
fi
# Newer promtools for the rule tests, unpacked beside the build and never installed; without them the tests say so.
if [[ ${1:-test} == test ]]; then
  scripts/install_promtools.sh
  # Where npm has to be installed first, the tests of the page do this when they are run.
  ! have npm || scripts/install_browser_packages.sh
  ! have npm || scripts/install_grafana_types.sh
  ! have npm || scripts/install_push_clients.sh
fi
((${#missing[@]} + ${#optional[@]})) || $wants_valkey || exit 0

# What is left out, and why.
without() {
  if $wants_valkey; then
    say "valkey-server is not installed$1: the test against it will be skipped"
  fi
  if ((${#optional[@]})); then
    say "not installed$1, so the demo goes without (names as in Debian): ${optional[*]}"
  fi
}

if ! have apt-get; then
  ((${#missing[@]})) && die "please install these and try again (names as in Debian): ${missing[*]} ${optional[*]}"
  without ""
  exit 0
fi
if ((EUID == 0)); then
  as_root=()
elif have sudo; then
  as_root=(sudo)
elif ((${#missing[@]})); then
  die "please install these as root and try again: apt-get install ${missing[*]} ${optional[*]}"
else
  without ", which takes root"
  exit 0
fi

export DEBIAN_FRONTEND=noninteractive
# Debian's packages start their daemons on installation. We want promtool, not a Prometheus on port 9090 of somebody's
# machine, so a policy that refuses to start services is in place for as long as this takes, unless one is there already.
policy=/usr/sbin/policy-rc.d
if [[ ! -e $policy ]]; then
  trap '"${as_root[@]}" rm -f "$policy"' EXIT
  printf '#!/bin/sh\nexit 101\n' | "${as_root[@]}" tee "$policy" >/dev/null
  "${as_root[@]}" chmod 755 "$policy"
fi
install=("${as_root[@]}" apt-get install --yes --quiet --no-install-recommends)

# install_packages NAME...
install_packages() {
  say "installing $*"
  # A fresh container has no package lists; a used one may have outdated ones. Only then is an update needed.
  "${install[@]}" "$@" </dev/null >&2 || {
    "${as_root[@]}" apt-get update --quiet </dev/null >&2
    "${install[@]}" "$@" </dev/null >&2
  }
}

# Debian 12 has Valkey in its backports only: these are looked into for this once, on the mirror that is configured.
install_valkey() {
  "${install[@]}" valkey-server </dev/null >/dev/null 2>&1 && return
  local codename mirror sources options
  codename=$(sed -n 's/^VERSION_CODENAME=//p' /etc/os-release)
  # shellcheck disable=SC2016 # apt-get fills these in
  mirror=$(apt-get indextargets --format '$(RELEASE) $(SITE)' 'Created-By: Packages' | sed -n "s/^$codename //p" | head -n 1)
  [[ -n $codename && -n $mirror ]] || return 1
  sources=$(mktemp)
  # Readable for the user that apt-get fetches as.
  chmod 644 "$sources"
  [[ ! -e /etc/apt/sources.list ]] || cat /etc/apt/sources.list >"$sources"
  printf 'deb %s %s-backports main\n' "$mirror" "$codename" >>"$sources"
  options=(-o "Dir::Etc::SourceList=$sources")
  "${as_root[@]}" apt-get update --quiet "${options[@]}" </dev/null >/dev/null 2>&1 &&
    "${install[@]}" "${options[@]}" valkey-server </dev/null >/dev/null 2>&1
  local status=$?
  rm -f "$sources"
  return "$status"
}

((${#missing[@]} == 0)) || install_packages "${missing[@]}"
((${#optional[@]} == 0)) || install_packages "${optional[@]}" || without " because it cannot be had here"
if [[ ${1:-test} == test ]]; then
  scripts/install_grafana_types.sh
  scripts/install_push_clients.sh
fi
if $wants_valkey; then
  say "installing valkey-server"
  install_valkey || say "valkey-server cannot be had here: the test against it will be skipped"
fi
