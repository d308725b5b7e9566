#!/usr/bin/env bash
# Fetches a package of another Debian release and unpacks it into a directory. Nothing is
# installed. Uses the mirror of this machine's apt and checks signatures.
#
# usage: scripts/unpack_debian.sh [--with-dependencies] RELEASE PACKAGE DIRECTORY
#
# With --with-dependencies, everything that the package needs is unpacked too, down to the C
# library. Of experimental, which has only some packages, the rest comes from sid.
#
# Fails with an explanation if the package cannot be fetched.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=scripts/lib.sh
source scripts/lib.sh

with_dependencies=
if [[ $1 == --with-dependencies ]]; then
  with_dependencies=yes
  shift
fi
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
releases=("$release")
[[ $release != experimental ]] || releases+=(sid)
printf "deb [signed-by=$keyring] $mirror %s main\n" "${releases[@]}" >"$root/etc/sources.list"
# No package counts as installed, so that the package brings its dependencies. A mirror that is a snapshot may be old.
: >"$root/status"
apt=(apt-get --quiet=2 -o "Dir::Etc=$root/etc" -o "Dir::Etc::sourceparts=/nonexistent" -o "Dir::State::lists=$root/state/lists"
  -o "Dir::State::status=$root/status" -o "Dir::Cache=$root/cache" -o "APT::Sandbox::User=root" -o "Acquire::Languages=none"
  -o "Acquire::Retries=1" -o "Acquire::Check-Valid-Until=false")
{
  "${apt[@]}" update
  if [[ $with_dependencies ]]; then
    "${apt[@]}" --yes --no-install-recommends --download-only install "$package/$release"
  else
    (cd "$root/cache/archives" && "${apt[@]}" download "$package/$release")
  fi
} </dev/null >&2
mkdir -p "$directory"
for file in "$root"/cache/archives/*.deb; do
  dpkg-deb -x "$file" "$directory"
done
