#!/usr/bin/env bash
# Installs, upgrades, removes and purges the Debian package on a separate Debian
# (tests/deploy/package/inside.sh): first without a running systemd, then in a container that boots
# systemd and really runs the units. Also checks the package with lintian.
#
# usage: scripts/test_deb.sh        (builds the exporter if it is missing)
#
# The Debian is this machine's release from this machine's mirror. It is made once and kept in
# target/debian-image; each run works on a copy. The container has a private network without
# external access. The test needs root, because it makes a container, and a Debian machine.
# Otherwise it is skipped.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=scripts/lib.sh
source scripts/lib.sh

((EUID == 0)) || skip "making a container takes root"
codename=$(sed -n 's/^VERSION_CODENAME=//p' /etc/os-release)
mirror=$(debian_mirror)
[[ -n $codename && -n $mirror ]] || skip "this is no Debian"
for tool in mmdebstrap systemd-nspawn lintian dpkg-deb; do
  have "$tool" || die "$tool is missing: scripts/install.sh installs it"
done

target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
image=$target/debian-image/$codename
if [[ ! -d $image ]]; then
  say "making a Debian $codename to install the package on"
  mkdir -p "${image%/*}"
  rm -rf "$image.partial"
  # With a Redis for the exporter to watch.
  mmdebstrap --quiet --variant=minbase --include=systemd-sysv,dbus,redis-server,curl,libgcc-s1 "$codename" "$image.partial" "$mirror" >&2
  mv "$image.partial" "$image"
fi

cargo build --locked --quiet
# Compression would only take time: these packages are deleted after the test.
export DPKG_DEB_COMPRESSOR_LEVEL=0
work=$(mktemp -d "$target/debian-image/run.XXXXXX")
trap 'rm -rf "$work"' EXIT
mkdir "$work/packages"
package=$(scripts/package_deb.sh "$target/debug/redis_lock_exporter" "$work/packages" 2>/dev/null)
again=$(scripts/package_deb.sh "$target/debug/redis_lock_exporter" "$work/again" 2>/dev/null)
cmp "$package" "$again" || die "the package is another one when it is built again"
say "lintian"
lintian --allow-root --fail-on error,warning "$package" >&2 || die "lintian finds fault with the package"

# The same package as an older version, with other settings and one more file.
mv "$package" "$work/packages/new.deb"
dpkg-deb --raw-extract "$work/packages/new.deb" "$work/old"
sed -i 's/^Version: .*/Version: 0.0.1~before/' "$work/old/DEBIAN/control"
sed -i '1i # As it was before.' "$work/old/etc/default/redis_lock_exporter"
touch "$work/old/usr/share/redis_lock_exporter/of_the_old_version"
dpkg-deb --root-owner-group --build "$work/old" "$work/packages/old.deb" >/dev/null
cp tests/deploy/package/inside.sh deploy/systemd/{default,config.yaml,redis_lock_exporter.service} "$work/packages/"

cp -a "$image" "$work/root"
container=(systemd-nspawn --quiet --directory="$work/root" --machine="package-test-$$" --register=no --keep-unit --private-network
  --link-journal=no --console=pipe --bind-ro="$work/packages:/packages")

# in_container COMMAND...: runs for at most ten minutes. The output goes to $work/console.
in_container() {
  timeout --kill-after=20 600 "$@" </dev/null >>"$work/console" 2>&1 || true
}

# verdict REPORT WHERE: prints the report and fails unless it says that the checks passed.
verdict() {
  cat "$1" >&2 2>/dev/null || true
  if ! grep -q '^passed: [1-9]' "$1"; then
    cat "$work/console" >&2
    die "the package does not do what it should, $2"
  fi
}

say "without systemd"
in_container "${container[@]}" --as-pid2 bash -c '/bin/bash /packages/inside.sh without-systemd >/report 2>&1'
verdict "$work/root/report" "where no systemd runs"
rm "$work/root/report"

say "with systemd"
cp tests/deploy/package/test.service "$work/root/etc/systemd/system/package-test.service"
cp tests/deploy/package/test.target "$work/root/etc/systemd/system/package-test.target"
in_container "${container[@]}" --boot systemd.unit=package-test.target
verdict "$work/root/report" "where systemd runs"
