# shellcheck shell=bash
# Functions that several scripts share. Sourced, never run.

# say MESSAGE...: progress for people, on standard error so that results can be piped.
say() {
  printf '==> %s\n' "$*" >&2
}

# die MESSAGE...
die() {
  printf 'error: %s\n' "$*" >&2
  exit 2
}

have() {
  command -v "$1" >/dev/null 2>&1
}

# debian_mirror: where this machine's apt gets Debian from; empty where it does not.
debian_mirror() {
  # shellcheck disable=SC2016  # apt expands it, not the shell
  { apt-get indextargets --format '$(SITE)' 2>/dev/null || true; } | grep -m 1 '/debian/\?$' || true
}

# free_port FIRST: the first port from FIRST on that nobody listens on.
free_port() {
  local port
  for ((port = $1; port < $1 + 200; port++)); do
    # A refused connection means that the port is free.
    if ! (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; then
      printf '%s\n' "$port"
      return
    fi
  done
  die "no free port between $1 and $((port - 1))"
}

# http_get PORT PATH: head and body of the answer. Plain bash, so that no HTTP client has to be installed.
http_get() {
  # HTTP/1.0: the answer ends where the connection does.
  exec 3<>"/dev/tcp/127.0.0.1/$1" || return 1
  printf 'GET %s HTTP/1.0\r\nHost: 127.0.0.1\r\nAccept: text/plain\r\n\r\n' "$2" >&3
  cat <&3
  exec 3>&-
}

# wait_ready PORT PID SECONDS: until /-/ready answers 200; fails when the process ends or the time is over.
wait_ready() {
  local deadline=$((SECONDS + $3)) answer
  while ((SECONDS < deadline)); do
    answer=$(http_get "$1" /-/ready 2>/dev/null | head -n 1) || true
    [[ $answer == *" 200 "* ]] && return 0
    kill -0 "$2" 2>/dev/null || return 1
    sleep 0.05
  done
  return 1
}

# install_locked_packages DIRECTORY WHAT: the npm packages that a lock file pins, beside it. Does nothing, and needs no network,
# when they are there.
install_locked_packages() {
  local installed=$1/node_modules/.of-this-lock-file
  ! cmp --silent "$1/package-lock.json" "$installed" || return 0
  have npm || die "npm is missing: install Node 20 or newer with npm, or run scripts/install.sh"
  say "installing $2"
  npm ci --prefix "$1" --ignore-scripts --no-audit --no-fund --loglevel=error </dev/null >&2
  cp "$1/package-lock.json" "$installed"
}
