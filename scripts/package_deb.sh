#!/usr/bin/env bash
# Builds a Debian package with dpkg-deb: binary, units, configuration, manual pages, completions,
# rules, dashboards and runbooks.
#
# usage: scripts/package_deb.sh [BINARY] [OUTPUT DIRECTORY]     (default: a release build,
# target/debian)
#
# Prints the path of the package. The same binary and commit give the same package, byte for byte.
# scripts/test_deb.sh installs, upgrades and removes it.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=scripts/lib.sh
source scripts/lib.sh

target=${CARGO_TARGET_DIR:-target}
binary=${1:-}
output=${2:-$target/debian}
have dpkg-deb || die "dpkg-deb is missing: on other systems use the binary itself, or the container"
if [[ -z $binary ]]; then
  cargo build --locked --release
  binary=$target/release/redis_lock_exporter
fi

# needed_libc BINARY: prints the newest glibc version whose symbols the binary uses.
needed_libc() {
  grep -aoE 'GLIBC_2\.[0-9]+' "$1" | sed 's/GLIBC_//' | sort -Vu | tail -n 1
}

version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
architecture=$(dpkg --print-architecture)
# No file in the package is newer than this time. dpkg-deb also reads this variable.
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || stat --format=%Y CHANGELOG.md)}
export SOURCE_DATE_EPOCH
maintainer="redis_lock_exporter <maintainers@redis-lock-exporter.invalid>"
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
chmod 755 "$root"

install -D -m 755 "$binary" "$root/usr/bin/redis_lock_exporter"
strip --strip-unneeded "$root/usr/bin/redis_lock_exporter" 2>/dev/null || say "no strip here: the package keeps its line tables"
install -D -m 644 --target-directory "$root/usr/lib/systemd/system" deploy/systemd/redis_lock_exporter.{service,socket}
install -D -m 644 deploy/systemd/sysusers.conf "$root/usr/lib/sysusers.d/redis_lock_exporter.conf"
# The file may contain a password. systemd reads it as root.
install -D -m 640 deploy/systemd/default "$root/etc/default/redis_lock_exporter"
# Readable by every user, because the user of the service can be changed. Passwords belong in
# separate files or credentials.
install -D -m 644 deploy/systemd/config.yaml "$root/etc/redis_lock_exporter/config.yaml"

install -d "$root/usr/share/man/man1" "$root/usr/share/bash-completion/completions" "$root/usr/share/zsh/vendor-completions" \
  "$root/usr/share/fish/vendor_completions.d"
"$binary" man "$root/usr/share/man/man1" >/dev/null
gzip -9n "$root"/usr/share/man/man1/*
"$binary" completions bash >"$root/usr/share/bash-completion/completions/redis_lock_exporter"
"$binary" completions zsh >"$root/usr/share/zsh/vendor-completions/_redis_lock_exporter"
"$binary" completions fish >"$root/usr/share/fish/vendor_completions.d/redis_lock_exporter.fish"

documents=$root/usr/share/doc/redis-lock-exporter
install -d "$documents"
install -m 644 README.md CHANGELOG.md docs/*.md "$documents/"
install -D -m 644 --target-directory "$documents/decisions" docs/decisions/*.md
cat >"$documents/copyright" <<EOF
Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Files: *
Copyright: $(date --utc --date "@$SOURCE_DATE_EPOCH" +%Y) the authors of redis_lock_exporter
License: Apache-2.0
 On Debian systems the full text is in /usr/share/common-licenses/Apache-2.0.
EOF
gzip -9n >"$documents/changelog.gz" <<EOF
redis-lock-exporter ($version) unstable; urgency=medium

  * What changed for users is in CHANGELOG.md beside this file.

 -- $maintainer  $(LC_ALL=C date --utc --rfc-email --date "@$SOURCE_DATE_EPOCH")
EOF
install -D -m 644 deploy/debian/lintian-overrides "$root/usr/share/lintian/overrides/redis-lock-exporter"
"$binary" pack "$root/usr/share/redis_lock_exporter" >/dev/null

install -d "$root/DEBIAN"
install -m 755 deploy/debian/{postinst,prerm,postrm} "$root/DEBIAN/"
printf '%s\n' /etc/default/redis_lock_exporter /etc/redis_lock_exporter/config.yaml >"$root/DEBIAN/conffiles"
cat >"$root/DEBIAN/control" <<EOF
Package: redis-lock-exporter
Version: $version
Architecture: $architecture
Maintainer: $maintainer
Section: net
Priority: optional
Depends: libc6 (>= $(needed_libc "$root/usr/bin/redis_lock_exporter")), libgcc-s1
Recommends: ca-certificates
Suggests: prometheus, prometheus-alertmanager
Installed-Size: $(du -sk "$root" | cut -f 1)
Description: Prometheus exporter for distributed locks in Redis
 Follows logs and watches the keys in Redis, counts lost locks and failed
 renewals by lock namespace, and says why they were lost. Comes with alert
 rules, dashboards and runbooks.
EOF
(cd "$root" && find . -path ./DEBIAN -prune -o -type f -printf '%P\0' | sort -z | xargs -0 md5sum >DEBIAN/md5sums)
mkdir -p "$output"
package=$output/redis-lock-exporter_${version}_$architecture.deb
dpkg-deb --root-owner-group --build "$root" "$package" >&2
printf '%s\n' "$package"
