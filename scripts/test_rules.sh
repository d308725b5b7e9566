#!/usr/bin/env bash
# Tests the alert rules. The cases are in scripts/rule_tests. The generated files for promtool are
# in target/rule-tests.
#
# usage: scripts/test_rules.sh [--full] [--again]
#
#   default   every case on one promtool (the one on PATH, otherwise the oldest in target/promtool),
#             and a check that every promtool found loads the rules
#   --full    every case on every promtool found, and every case with the complete rule file on one
#   --again   also run tests that passed before and have not changed since
#
# scripts/install_promtools.sh puts newer versions of promtool into target/promtool.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=scripts/lib.sh
source scripts/lib.sh

full='' again=()
for argument in "$@"; do
  case $argument in
    --full) full=yes ;;
    --again) again=(--again) ;;
    *) die "unknown argument $argument; usage: scripts/test_rules.sh [--full] [--again]" ;;
  esac
done

# Python also keeps its compiled modules in the target directory.
PYTHONPYCACHEPREFIX=$(realpath -m "${CARGO_TARGET_DIR:-target}")/pycache
export PYTHONPYCACHEPREFIX

python3 scripts/check_rules.py
python3 scripts/make_prometheusrule.py --check

# The promtools found, one per version. The first one runs the tests.
promtools=() versions=()
for promtool in "$(command -v promtool || true)" $(printf '%s\n' target/promtool/*/usr/bin/promtool | while read -r path; do
  [[ -x $path ]] && printf '%s %s\n' "$("$path" --version 2>&1 | head -n 1 | cut -d ' ' -f 3)" "$path"
done | sort -V | cut -d ' ' -f 2); do
  [[ -n $promtool ]] || continue
  version=$("$promtool" --version 2>&1 | head -n 1 | cut -d ' ' -f 3)
  [[ " ${versions[*]-} " != *" $version "* ]] || continue
  "$promtool" check rules alerts/*.rules.yml >/dev/null || die "promtool $version does not load the rules"
  promtools+=("$promtool") versions+=("$version")
done
((${#promtools[@]})) || die "no promtool: scripts/install.sh installs one"
say "the rules load in promtool ${versions[*]}"
((${#promtools[@]} > 1)) || say "only one version of promtool was found; scripts/install_promtools.sh fetches newer ones"

if [[ $full ]]; then
  python3 scripts/run_rule_tests.py "${again[@]}" "${promtools[@]}"
  python3 scripts/run_rule_tests.py "${again[@]}" --whole "${promtools[0]}"
else
  python3 scripts/run_rule_tests.py "${again[@]}" "${promtools[0]}"
fi
