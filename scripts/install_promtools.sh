#!/usr/bin/env bash
# Fetches promtool of newer Prometheus generations for scripts/test_rules.sh: Debian's packages of other releases, unpacked
# into a cache directory and never installed.
#
# usage: scripts/install_promtools.sh [DIRECTORY]      (default: target/promtool; prints nothing on success)
#
# Best effort: without apt-get or the network it says so and leaves what is there. A package that is there is not fetched
# again. The mirror is the one that this machine's apt already uses.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=scripts/lib.sh
source scripts/lib.sh

cache=$(realpath -m "${1:-target/promtool}")
# release:package. From trixie on promtool is a package of its own.
wanted=(trixie:promtool sid:promtool)

if ! have apt-get || ! have dpkg-deb; then
  say "no apt-get here: rules are tested with the promtool on the PATH only"
  exit 0
fi
# shellcheck disable=SC2016  # apt expands it, not the shell
mirror=$(apt-get indextargets --format '$(SITE)' 2>/dev/null | grep -m 1 '/debian/\?$' || true)
keyring=/usr/share/keyrings/debian-archive-keyring.gpg
if [[ -z $mirror || ! -r $keyring ]]; then
  say "apt knows no Debian mirror: rules are tested with the promtool on the PATH only"
  exit 0
fi

fetch() {
  local release=$1 package=$2 root=$cache/$1/apt
  mkdir -p "$root"/{etc/apt.conf.d,etc/preferences.d,state/lists/partial,cache/archives/partial}
  printf 'deb [signed-by=%s] %s %s main\n' "$keyring" "$mirror" "$release" >"$root/etc/sources.list"
  local apt=(apt-get --quiet=2 -o "Dir::Etc=$root/etc" -o "Dir::Etc::sourceparts=/nonexistent" -o "Dir::State::lists=$root/state/lists"
    -o "Dir::Cache=$root/cache" -o "APT::Sandbox::User=root" -o "Acquire::Languages=none" -o "Acquire::Retries=1")
  "${apt[@]}" update && (cd "$root" && "${apt[@]}" download "$package") && dpkg-deb -x "$root/$package"_*.deb "$cache/$release" || return 1
  rm -rf "$root"
}

for entry in "${wanted[@]}"; do
  release=${entry%%:*}
  [[ -x $cache/$release/usr/bin/promtool ]] && continue
  say "fetching promtool of Debian $release"
  if ! fetch "$release" "${entry##*:}" </dev/null >&2 || ! "$cache/$release/usr/bin/promtool" --version >/dev/null 2>&1; then
    say "promtool of Debian $release cannot be had, going on without"
    rm -rf "${cache:?}/$release"
  fi
done
