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
