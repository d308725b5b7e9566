#!/usr/bin/env bash
# Installs the lock libraries that the tests run, in the target directory: pinned versions from
# PyPI, npm and crates.io. Run-times and libraries of other languages come from Debian. Skips
# everything that is already installed, and then needs no network.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=scripts/lib.sh
source scripts/lib.sh

to=$(realpath -m "${CARGO_TARGET_DIR:-target}")/libraries

python_environments=(new celery redis-5.0 redis-4 redis-3 redis-2 aioredlock)
node_packages=(new old beta1 bullmq5)

# aioredlock needs aioredis 1, which does not run on Python 3.10 or newer.
python_for() {
  if [[ $1 != aioredlock ]]; then
    echo python3
    return
  fi
  local candidate
  for candidate in python3.9 python3.8 "$HOME"/.pyenv/versions/3.9.*/bin/python; do
    # pyenv may have a shim for a Python version that is not installed.
    if have "$candidate" && "$candidate" --version >/dev/null 2>&1; then
      echo "$candidate"
      return
    fi
  done
}

for name in "${python_environments[@]}"; do
  requirements=tests/libraries/python/requirements/$name.txt
  ! cmp --silent "$requirements" "$to/python/$name/installed.txt" || continue
  python=$(python_for "$name")
  if [[ -z $python ]]; then
    say "there is no Python 3.9 here, which $name needs: it is not run"
    continue
  fi
  say "installing Python's $name into $to"
  rm -rf "$to/python/$name"
  "$python" -m venv "$to/python/$name"
  "$to/python/$name/bin/pip" install --quiet --disable-pip-version-check --requirement "$requirements"
  cp "$requirements" "$to/python/$name/installed.txt"
done

for name in "${node_packages[@]}"; do
  package=tests/libraries/node/packages/$name/package.json
  ! cmp --silent "$package" "$to/node/$name/installed.json" || continue
  say "installing Node's $name into $to"
  rm -rf "$to/node/$name"
  mkdir -p "$to/node/$name"
  cp "$package" "$to/node/$name/package.json"
  npm install --prefix "$to/node/$name" --silent --no-audit --no-fund --no-package-lock --ignore-scripts
  cp "$package" "$to/node/$name/installed.json"
done

cargo build --quiet --locked --manifest-path tests/libraries/rust/Cargo.toml --target-dir "$to/rust"
missing=()
for entry in php:php-cli /usr/share/php/Symfony/Component/Lock:php-symfony-lock /usr/share/php/Monolog:php-monolog \
  /usr/share/php/Illuminate/Cache:php-illuminate-cache /usr/share/php/Illuminate/Redis:php-illuminate-redis \
  /usr/share/doc/php-redis:php-redis ruby:ruby sidekiq:ruby-sidekiq javac:default-jdk-headless; do
  have "${entry%%:*}" || [[ -d ${entry%%:*} ]] || missing+=("${entry##*:}")
done
((${#missing[@]})) || exit 0
if have apt-get && ((EUID == 0)); then
  say "installing ${missing[*]}"
  export DEBIAN_FRONTEND=noninteractive
  install=(apt-get install --yes --quiet --no-install-recommends)
  "${install[@]}" "${missing[@]}" </dev/null >&2 || {
    apt-get update --quiet </dev/null >&2
    "${install[@]}" "${missing[@]}" </dev/null >&2
  }
else
  say "not installed, so their libraries are not run (names as in Debian): ${missing[*]}"
fi
