#!/usr/bin/env bash
# Everything that has to hold before a change is merged; `make test` and CI run this and nothing else.
#
# Each step says what it is and how long it took. The first failure ends it.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=scripts/lib.sh
source scripts/lib.sh

step() {
  local name=$1 started=$SECONDS
  shift
  say "$name: $*"
  "$@" </dev/null || die "$name failed (after $((SECONDS - started)) s)"
  say "$name: ok, $((SECONDS - started)) s"
}

scripts/install.sh test
bash scripts/lint.sh
step "alert rules" scripts/test_rules.sh
# A few of a draw that is quick to try: what many rules rest on takes minutes. All of them: `make alert-mutation`.
step "alert rules, a few mutants" python3 scripts/mutate_rules.py --sample 24 --seed 4 --least 0.95
step "dashboards fit Grafana's types" python3 scripts/check_dashboards.py
if cargo nextest --version >/dev/null 2>&1; then
  step "tests" cargo nextest run --locked --no-fail-fast
else
  say "cargo-nextest is not installed, using cargo test (same tests, one binary at a time)"
  step "tests" cargo test --locked --no-fail-fast --lib --bins --examples --tests
fi
step "lock libraries" scripts/test_libraries.sh quick
step "page in a browser" scripts/test_page.sh
step "dashboards during an incident" python3 scripts/try_dashboards.py
step "deployment files" scripts/test_deploy.sh
step "alert benchmark, a few scenarios" python3 scripts/alert_bench.py --smoke
step "documentation examples" cargo test --locked --doc
RUSTDOCFLAGS="-D warnings" step "documentation" cargo doc --locked --no-deps --quiet
# Running them needs cargo-fuzz and nightly; that they still compile does not. The path keeps libfuzzer-sys from building
# its C++ part, which a check never links. Without --locked: a dependency added to the package reaches fuzz/Cargo.lock here.
export CUSTOM_LIBFUZZER_PATH=/nonexistent/libfuzzer.a
step "fuzz targets compile" cargo check --manifest-path fuzz/Cargo.toml --target-dir "${CARGO_TARGET_DIR:-target}"
# Advisories change without a change of ours and want the network: they are the workflow's.
if have cargo-deny; then
  step "licenses, bans and sources" cargo deny --all-features check licenses bans sources
else
  say "cargo-deny is not installed, licenses and advisories are left to the GitHub workflow"
fi
# It takes two or three minutes. A slow machine that has worked for half an hour leaves it to `make test-deb`, and says so.
if ((SECONDS < 1800)); then
  step "Debian package" scripts/test_deb.sh
else
  say "Debian package: left out, because $SECONDS s have gone by; make test-deb tests it"
fi
say "all passed in $SECONDS s"
