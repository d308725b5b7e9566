#!/usr/bin/env bash
# How long does a newcomer wait? Clones this repository's HEAD into a temporary directory with an empty cargo cache, runs `make demo`, and prints
# the seconds until the first page fires and until Alertmanager delivers it. Exits with 1 if that takes longer than LIMIT seconds (default 240).
#
# It needs the machine for itself. Commands that are already installed are not installed again.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=scripts/lib.sh
source scripts/lib.sh

limit=${LIMIT:-240}
work=$(mktemp -d)
demo=
finish() {
  # The demo ends its own children.
  [[ -z $demo ]] || kill -INT -- "-$demo" 2>/dev/null || true
  wait 2>/dev/null || true
  rm -rf "$work"
}
trap finish EXIT

started=$SECONDS
git clone --quiet . "$work/clone"
unset CARGO_TARGET_DIR
# In a process group of its own, so that the signal reaches all of it.
set -m
CARGO_HOME=$work/cargo CARGO_TERM_PROGRESS_WHEN=never make --directory "$work/clone" demo </dev/null >"$work/output" 2>&1 &
demo=$!
set +m

# report WHAT TEXT: waits for a line with the text, and prints the time.
report() {
  until grep -qE "$2" "$work/output"; do
    if ! kill -0 "$demo" 2>/dev/null || ((SECONDS - started > 3 * limit)); then
      tail -n 20 "$work/output" >&2
      die "make demo did not get to: $1"
    fi
    sleep 0.2
  done
  took=$((SECONDS - started))
  printf '%4d s  %s\n' "$took" "$1"
}

report "the exporter is built" 'Finished .* target'
report "the demo runs" '^exporter '
report "the incident begins" 'incident: '
report "the first page fires" '\(critical, .*\) FIRES'
fired=$took
report "Alertmanager delivers it" 'Alertmanager sends a page'
((fired <= limit)) || die "the first page took $fired s, more than $limit s"
