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

# is_listening PID PORT: whether this process listens on the port. A connection does not tell: the port may belong to somebody else.
is_listening() {
  local hex inode
  printf -v hex '%04X' "$2"
  while read -r inode; do
    [[ -z $(find "/proc/$1/fd" -lname "socket:\[$inode\]" 2>/dev/null) ]] || return 0
  done < <(awk -v "port=:$hex\$" '$4 == "0A" && $2 ~ port { print $10 }' "/proc/$1/net/tcp" "/proc/$1/net/tcp6" 2>/dev/null)
  return 1
}

# start_on_free_port OUTPUT COMMAND...: starts the command in the background, with {port} in its words replaced by a free port, and waits
# until it listens. If it ends instead, because somebody else has the port, it tries another one. Sets `pid` and `port`. The ports are below
# the range from which Linux takes those of outgoing connections.
start_on_free_port() {
  local output=$1 attempt deadline
  shift
  for ((attempt = 0; attempt < 10; attempt++)); do
    port=$((12000 + RANDOM % 20000))
    "${@//\{port\}/$port}" >"$output" 2>&1 &
    pid=$!
    deadline=$((SECONDS + 120))
    while kill -0 "$pid" 2>/dev/null; do
      ! is_listening "$pid" "$port" || return 0
      ((SECONDS < deadline)) || die "$1 does not listen on port $port within 120 s: $(tail -n 3 "$output")"
      sleep 0.02
    done
  done
  die "$1 does not start: $(tail -n 3 "$output")"
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

# node_project DIRECTORY: copies the JavaScript files of tests/NAME to target/node/NAME, installs the npm packages that its lock file pins there,
# and prints that place. Needs no network when they are there.
node_project() {
  local place
  place=$(realpath -m "${CARGO_TARGET_DIR:-target}")/node/${1##*/}
  mkdir -p "$place"
  cp "$1"/*.js "$1"/package.json "$place/"
  if ! cmp --silent "$1/package-lock.json" "$place/installed.json"; then
    have npm || die "npm is missing: install Node 20 or newer with npm, or run scripts/install.sh"
    say "installing the packages of $1"
    cp "$1/package-lock.json" "$place/"
    npm ci --prefix "$place" --ignore-scripts --no-audit --no-fund --loglevel=error </dev/null >&2
    # Last: it says that everything is there.
    cp "$1/package-lock.json" "$place/installed.json"
  fi
  printf '%s\n' "$place"
}

# The exit status of a step of scripts/test.sh that was skipped, as in Automake.
SKIPPED=77

# skip WHY: ends a step of scripts/test.sh that lacks something. The summary says why.
skip() {
  printf '%s: %s\n' "${STEP:-${0##*/}}" "$*" | tee -a "${SKIPPED_TESTS:-/dev/null}" >&2
  exit "$SKIPPED"
}
