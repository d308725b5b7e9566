#!/usr/bin/env bash
# Fetches one package of another Debian release and unpacks it into a directory. Nothing is
# installed. Uses the mirror of this machine's apt and checks signatures.
#
# usage: scripts/unpack_debian.sh RELEASE PACKAGE DIRECTORY
#
# Fails with an explanation if the package cannot be fetched.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=scripts/lib.sh
source scripts/lib.sh

release=$1 package=$2 directory=$(realpath -m "$3")
if ! have apt-get || ! have dpkg-deb; then
  die "no apt-get here: $package of Debian $release cannot be fetched"
fi
mirror=$(debian_mirror)
keyring=/usr/share/keyrings/debian-archive-keyring.gpg
[[ -n $mirror && -r $keyring ]] || die "apt knows no Debian mirror: $package of Debian $release cannot be fetched"

say "fetching $package of Debian $release"
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
mkdir -p "$root"/{etc/apt.conf.d,etc/preferences.d,state/lists/partial,cache/archives/partial}
printf 'deb [signed-by=%s] %s %s main\n' "$keyring" "$mirror" "$release" >"$root/etc/sources.list"
apt=(apt-get --quiet=2 -o "Dir::Etc=$root/etc" -o "Dir::Etc::sourceparts=/nonexistent" -o "Dir::State::lists=$root/state/lists"
  -o "Dir::Cache=$root/cache" -o "APT::Sandbox::User=root" -o "Acquire::Languages=none" -o "Acquire::Retries=1")
{
  "${apt[@]}" update
  (cd "$root" && "${apt[@]}" download "$package")
} </dev/null >&2
mkdir -p "$directory"
dpkg-deb -x "$root/$package"_*.deb "$directory"
