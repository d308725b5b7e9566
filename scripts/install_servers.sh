#!/usr/bin/env bash
# Fetches the newest servers for the step `servers` of scripts/test.sh: Redis of Debian experimental
# and Valkey of Debian sid, with the libraries that they need, unpacked into a cache directory and
# not installed.
#
# usage: scripts/install_servers.sh [DIRECTORY]      (default: target/servers)
#
# Writes DIRECTORY/redis-server and DIRECTORY/valkey-server, scripts that start the servers. Prints
# nothing on success. Without apt-get or the network it prints a message and keeps what is there. A
# server that is already there is not fetched again.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=scripts/lib.sh
source scripts/lib.sh

cache=$(realpath -m "${1:-${CARGO_TARGET_DIR:-target}/servers}")

# starter ROOT PROGRAM: the text of a script that starts a program of another Debian with that Debian's libraries. Its C library comes with its
# own loader, so that no chroot is needed.
starter() {
  local libc loader
  libc=$(find "$1/usr/lib" -name libc.so.6)
  loader=$(find "$1/usr/lib" -name 'ld-linux*.so.*' -type f)
  printf '#!/bin/sh\nexec "%s" --library-path "%s" "%s" "$@"\n' "$loader" "${libc%/*}" "$1/usr/bin/$2"
}

# install_server RELEASE PROGRAM
install_server() {
  local root=$cache/$2.root start=$cache/$2
  [[ ! -x $start ]] || return 0
  rm -rf "$root"
  if ! scripts/unpack_debian.sh --with-dependencies "$1" "$2" "$root"; then
    say "$2 of Debian $1 cannot be had, going on without"
    return 0
  fi
  starter "$root" "$2" >"$start.new"
  chmod 755 "$start.new"
  if ! "$start.new" --version >/dev/null 2>&1; then
    say "$2 of Debian $1 does not run here, going on without"
    return 0
  fi
  # Last: it says that everything is there.
  mv "$start.new" "$start"
}

mkdir -p "$cache"
install_server experimental redis-server
install_server sid valkey-server
