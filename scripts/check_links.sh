#!/usr/bin/env bash
# Checks that every link in Markdown to a file of this repository points to an existing file. Web
# links are not followed: a test must not fail because another server is down.
set -euo pipefail
cd "$(dirname "$0")/.."

n_broken=0
while IFS= read -r page; do
  # Remove code: `[a](b)` in code is not a link.
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
# Untracked pages are checked too, because they are about to be committed.
done < <(git ls-files --cached --others --exclude-standard -- '*.md')
((n_broken == 0))
