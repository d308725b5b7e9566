# shellcheck shell=bash
# Shared by the benchmarks: calculations, table rows, and the file of results. Sourced after lib.sh,
# never executed.
# shellcheck disable=SC2034 # The scripts that source this file use these variables.

data=bench-data
target=${CARGO_TARGET_DIR:-target}/release
exporter=$target/redis_lock_exporter
failed=0
results=()

# calc EXPRESSION: evaluates with floating point, which bash does not have.
calc() {
  awk "BEGIN { printf \"%.3f\", $1 }"
}

# metric NAME: prints the sum over all series of NAME in the text of /metrics on standard input.
metric() {
  awk -v name="$1" '{ split($1, part, "{") } part[1] == name { sum += $NF; seen = 1 } END { if (seen) printf "%.3f", sum }'
}

# row NAME VALUE BAR CONDITION: prints one line of the table. CONDITION is an awk expression, or
# empty if there is no limit.
row() {
  local verdict=''
  if [[ $4 ]]; then
    verdict=$(awk "BEGIN { print ($4) ? \"PASS\" : \"FAIL\" }")
    [[ $verdict == PASS ]] || failed=1
  fi
  printf '%-44s %12s  %-10s %s\n' "$1" "$2" "$3" "$verdict"
  results+=("$(printf '{"name": "%s", "value": "%s", "bar": "%s", "verdict": "%s"}' "$1" "$2" "$3" "$verdict")")
}

# write_results FILE: writes all rows as JSON.
write_results() {
  {
    printf '{\n  "commit": "%s",\n  "cpu": "%s",\n  "results": [\n' "$(git rev-parse --short HEAD 2>/dev/null || echo unknown)" \
      "$(awk -F ': ' '/^model name/ { print $2; exit }' /proc/cpuinfo)"
    for ((index = 0; index < ${#results[@]}; index++)); do
      printf '    %s%s\n' "${results[index]}" "$( ((index + 1 < ${#results[@]})) && echo ,)"
    done
    printf '  ]\n}\n'
  } >"$1"
  say "written to $1"
}
