#!/usr/bin/env bash
# Runs the tests, in three sizes:
#
#   scripts/test.sh quick [STEP...]   after each change: format, lints, unit tests, the fast integration tests
#   scripts/test.sh test [STEP...]    what no change may break (`make test`)
#   scripts/test.sh all [STEP...]     the long remainder, before a release and in CI (`make test-all`)
#
# Without STEPs it runs every step of that size; `scripts/test.sh all list` lists them. It installs what is missing, goes on after a step that
# failed, and ends with a summary: what failed, what was skipped and why, how long each step took.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=scripts/lib.sh
source scripts/lib.sh

quick_steps=(format clippy shell links unit fast-integration)
test_steps=(format clippy shell links unit integration rules dashboards page-smoke docs)
all_steps=(promtools mutants libraries page dashboards-incident deployment alert-bench fuzz-targets servers licenses oldest-rust debian-package)

# --- The steps. A step that lacks something calls `skip`.

run_format() { cargo fmt --check; }

run_clippy() { cargo clippy --locked --all-targets -- -D warnings; }

run_shell() {
  shellcheck --external-sources scripts/*.sh .ci/run tests/deploy/package/inside.sh deploy/debian/{postinst,prerm,postrm}
}

run_links() { scripts/check_links.sh; }

# Many tests wait for servers: more of them run at once than there are cores. Each has its own deadlines; a test that hangs all the same ends
# the step.
cargo_tests() {
  timeout --kill-after=30 2400 cargo test --locked "$@"
}

threads=--test-threads=$((6 * $(nproc)))

run_unit() { cargo_tests "${unit_targets[@]}" -- "$threads"; }

integration_tests() { cargo_tests --test integration -- "$threads" "$@"; }

# These compare what the exporter sees of single changes, milliseconds apart, with what really happened. An exporter that waits for a processor
# sees several changes at once, so they do not run beside a dozen others.
exact_tests=(keyspace::truth:: keyspace::findings::)

# Random faults while workers use locks, on each kind of installation. They mostly wait, so they run side by side.
fault_tests=keyspace::fault_model::counts

# integration_and_exact_tests FILTER...
integration_and_exact_tests() {
  local test others=()
  for test in "${exact_tests[@]}" "$fault_tests"; do
    others+=(--skip "$test")
  done
  integration_tests "$@" "${others[@]}"
  cargo_tests --test integration -- --test-threads=1 "${exact_tests[@]}"
  cargo_tests --test integration -- --test-threads=5 "$fault_tests"
}

# The step `servers` tests the commands that the installed Redis may not know.
run_integration() { integration_and_exact_tests --skip keyspace::newest::; }

# The modules whose tests take a few seconds together.
run_fast_integration() {
  integration_tests alertmanager:: api:: check_rules:: dashboards:: exposition:: fleet:: page:: pack:: preset:: presets:: replay:: seeds:: \
    --skip keyspace:: --skip runbooks:: --skip cordum::
}

run_rules() { scripts/test_rules.sh ${RULES_AGAIN:+--again}; }

run_dashboards() {
  scripts/install_grafana_types.sh
  python3 scripts/check_dashboards.py
}

run_page_smoke() { scripts/test_page.sh smoke; }

run_docs() {
  cargo test --locked --doc
  RUSTDOCFLAGS="-D warnings" cargo doc --locked --no-deps --quiet
}

run_promtools() {
  scripts/install_promtools.sh
  scripts/test_rules.sh --full
}

# A few of a draw that is quick to try; `make alert-mutation` tries all of them, for more than an hour.
run_mutants() { python3 scripts/mutate_rules.py --sample 24 --seed 4 --least 0.95; }

run_libraries() { scripts/test_libraries.sh all; }

run_page() { scripts/test_page.sh; }

run_dashboards_incident() { python3 scripts/try_dashboards.py; }

run_deployment() { scripts/test_deploy.sh; }

run_alert_bench() { python3 scripts/alert_bench.py --smoke; }

# Running them takes cargo-fuzz and a nightly Rust; that they compile does not. The path keeps libfuzzer-sys from building its C++ part, which a
# check never links.
run_fuzz_targets() {
  CUSTOM_LIBFUZZER_PATH=/nonexistent/libfuzzer.a cargo check --locked --manifest-path fuzz/Cargo.toml --target-dir "$target"
}

# `make test` uses the Redis that is installed. The same tests run on the newest Redis and Valkey here.
run_servers() {
  local server servers=()
  scripts/install_servers.sh "$target/servers"
  for server in "$target"/servers/{redis,valkey}-server; do
    [[ ! -x $server ]] || servers+=("$server")
  done
  ((${#servers[@]} == 2)) || skip "the newest Redis and Valkey cannot be fetched from a Debian mirror here"
  for server in "${servers[@]}"; do
    say "$("$server" --version)"
    REDIS_SERVER=$server integration_and_exact_tests keyspace::
  done
}

# Advisories change without a change of ours and need the network: the workflow looks at them.
run_licenses() {
  have cargo-deny || skip "cargo-deny is not installed"
  cargo deny --all-features check licenses bans sources
}

run_oldest_rust() {
  local version
  version=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml)
  cargo "+$version" --version >/dev/null 2>&1 || skip "Rust $version is not installed"
  cargo "+$version" check --locked --target-dir "$target/oldest-rust"
}

run_debian_package() { scripts/test_deb.sh; }

# --- Running them.

size=${1:-}
unit_targets=(--lib --bins --examples)
case $size in
  quick)
    steps=("${quick_steps[@]}")
    unit_targets=(--lib --bins)
    ;;
  test) steps=("${test_steps[@]}") ;;
  all) steps=("${all_steps[@]}") ;;
  *) die "usage: scripts/test.sh quick|test|all [STEP...]" ;;
esac
shift
if [[ ${1:-} == list ]]; then
  printf '%s\n' "${steps[@]}"
  exit 0
fi
for wanted in "$@"; do
  [[ " ${steps[*]} " == *" $wanted "* ]] || die "there is no step '$wanted'; the steps of '$size' are: ${steps[*]}"
done
(($# == 0)) || steps=("$@")

target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
mkdir -p "$target"
# Steps and tests that lack something write a line here: who, and why.
export SKIPPED_TESTS=$target/skipped.txt
: >"$SKIPPED_TESTS"
# Python keeps its compiled modules below target/, too.
export PYTHONPYCACHEPREFIX=$target/pycache
results=()
n_failed=0

# run NAME COMMAND...: one step, in a shell of its own.
run() {
  local name=$1 started=$SECONDS status=0 n_skipped result seconds
  shift
  n_skipped=$(wc -l <"$SKIPPED_TESTS")
  say "$name"
  # Not `if`, in which `set -e` has no effect.
  set +e
  (
    set -e
    export STEP=$name
    "$@"
  ) </dev/null
  status=$?
  set -e
  seconds=$((SECONDS - started))
  case $status in
    0) result=passed ;;
    "$SKIPPED") result=skipped ;;
    *)
      result=FAILED
      n_failed=$((n_failed + 1))
      ;;
  esac
  say "$name: $result, $seconds s"
  results+=("$(printf '%5d s  %-20s %s' "$seconds" "$name" "$result")")
  [[ $result != passed ]] || (($(wc -l <"$SKIPPED_TESTS") == n_skipped)) || say "$name: some of its tests were skipped, see the summary"
}

# Installing waits for the network, building for the processor.
prepare() {
  local installing status=0
  scripts/install.sh "$size" >"$target/install.log" 2>&1 &
  installing=$!
  # Nothing can be built before there is a linker.
  have cc || wait "$installing" || true
  cargo test --locked --no-run "${unit_targets[@]}" --test integration || status=$?
  wait "$installing" || {
    cat "$target/install.log" >&2
    die "cannot install what the tests need, see above"
  }
  cat "$target/install.log" >&2
  return "$status"
}

run build prepare
((n_failed == 0)) || die "the build failed, or something that the tests need is missing: see above"
for step in "${steps[@]}"; do
  run "$step" "run_${step//-/_}"
done

{
  printf '\nThe slowest first:\n'
  printf '%s\n' "${results[@]}" | sort -rn
  if [[ -s $SKIPPED_TESTS ]]; then
    printf '\nSkipped:\n'
    sed 's/^/  /' "$SKIPPED_TESTS"
  fi
  printf '\nin %d s:\n' "$SECONDS"
} >&2
n_skipped=$(printf '%s\n' "${results[@]}" | grep -c ' skipped$' || true)
printf 'steps: %d passed, %d failed, %d skipped\n' $((${#results[@]} - n_failed - n_skipped)) "$n_failed" "$n_skipped"
((n_failed == 0))
