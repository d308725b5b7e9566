#!/usr/bin/env bash
# Tests the alert rules with every promtool that can be found: the one on the PATH, and those that
# scripts/install_promtools.sh unpacked into target/promtool. Says which versions ran.
#
# usage: scripts/test_rules.sh            all files with the oldest, those about ratios with the newest, a syntax check with the rest
#        scripts/test_rules.sh --full     all files with all of them
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=scripts/lib.sh
source scripts/lib.sh

python3 scripts/check_rules.py
python3 scripts/make_prometheusrule.py --check
python3 scripts/make_rule_tests.py --check

# version path, one a line, the oldest first.
found=$(for promtool in "$(command -v promtool || true)" target/promtool/*/usr/bin/promtool; do
  [[ -x $promtool ]] && printf '%s %s\n' "$("$promtool" --version 2>&1 | sed -n 's/^promtool, version \([0-9.]*\).*/\1/p')" "$promtool"
done | sort -V)
[[ -n $found ]] || die "no promtool: scripts/install.sh installs one"
oldest=$(head -n 1 <<<"$found" | cut -d ' ' -f 1) newest=$(tail -n 1 <<<"$found" | cut -d ' ' -f 1)

# Several run at a time, and memory is cheaper than collecting garbage.
export GOMAXPROCS=1 GOGC=800
jobs=$(mktemp)
trap 'rm -f "$jobs"' EXIT
while read -r version promtool; do
  "$promtool" check rules alerts/*.rules.yml >/dev/null || die "promtool $version refuses the rules"
  files='*.yml'
  if [[ ${1:-} != --full && $version == "$newest" && $version != "$oldest" ]]; then
    files='[nraut][^w]*.yml' # where the generations differ: windows and counts of slices
  fi
  if [[ ${1:-} == --full || $version == "$oldest" || $version == "$newest" ]]; then
    say "promtool $version: alerts/tests/$files"
    # The longest first, so that the processors finish together: days of evaluations, then by size.
    for file in $(find alerts/tests -name "$files" \( -name 'past*' -printf '99999999 %p\n' -o -printf '%s %p\n' \) | sort -rn | cut -d ' ' -f 2); do
      printf '%s\n' "$promtool test rules $file >/dev/null 2>&1 || { $promtool test rules $file; echo 'FAILED: promtool $version, $file'; exit 1; }"
    done >>"$jobs"
  else
    say "promtool $version: rules load (all tests with --full)"
  fi
done <<<"$found"
xargs --arg-file "$jobs" --max-procs "$(nproc)" --delimiter '\n' -I{} bash -c '{}' >&2 || die "a rule test failed, see above"
[[ $oldest != "$newest" ]] || say "only Prometheus $oldest was had; scripts/install_promtools.sh fetches newer ones"
