#!/usr/bin/env bash
# Format, lints, shell scripts and links: `make lint`, and the first part of `make test`.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=scripts/lib.sh
source scripts/lib.sh

say "cargo fmt --check"
cargo fmt --check
say "cargo clippy"
cargo clippy --locked --all-targets -- -D warnings
say "shellcheck"
have shellcheck || die "shellcheck is missing: scripts/install.sh installs it"
shellcheck --external-sources scripts/*.sh .ci/run tests/deploy/package/inside.sh deploy/debian/{postinst,prerm,postrm}
say "links in Markdown files"
scripts/check_links.sh
