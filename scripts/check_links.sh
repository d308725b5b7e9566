#!/usr/bin/env bash
# Links in Markdown that point to files of this repository must point to something. Web links are not followed: a test
# must not fail because somebody else's server is down.
set -euo pipefail
cd "$(dirname "$0")/.."

n_broken=0
while IFS= read -r page; do
  # Code is not prose: `[a](b)` in it is no link.
  # shellcheck disable=SC2016  # the backquotes are Markdown's
  links=$(sed -e '/^ *```/,/^ *```/d' -e 's/`[^`]*`//g' "$page" | grep -oE '\]\([^)[:space:]]+\)' | sed -e 's/^](//' -e 's/)$//') || true
  while IFS= read -r link; do
    case $link in
      '' | '#'* | http://* | https://* | mailto:*) continue ;;
    esac
    target=$(dirname "$page")/${link%%#*}
    if [[ ! -e $target ]]; then
      printf '%s: link to %s, which does not exist\n' "$page" "$link" >&2
      n_broken=$((n_broken + 1))
    fi
  done <<<"$links"
# Untracked pages count too: they are about to be committed.
done < <(git ls-files --cached --others --exclude-standard -- '*.md')
((n_broken == 0))
