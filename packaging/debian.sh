#!/usr/bin/env bash
# Builds the Debian package from what has been built in this checkout. The same input gives the same bytes.
# usage: packaging/debian.sh DIRECTORY; prints the package's path in it
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=../scripts/common.sh
. "$(dirname "$0")/../scripts/common.sh"

directory=${1:?usage: packaging/debian.sh DIRECTORY}
own=$root/packaging
need dpkg-deb dpkg
version=$(sed -n 's/^version = "\(.*\)"/\1/p' "$root/Cargo.toml" | head -1)
# The time of what it is built from, for all files.
: "${SOURCE_DATE_EPOCH:=$(git -C "$root" log -1 --format=%ct)}"
export SOURCE_DATE_EPOCH

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
chmod 755 "$work"
umask 022
"$own/install.sh" "$work/tree"
control=$work/tree/DEBIAN
mkdir "$control"
install -m 755 "$own"/debian/{postinst,prerm,postrm} "$control"
install -m 644 "$own/debian/conffiles" "$control"
size=$(du -sk --apparent-size --exclude=DEBIAN "$work/tree" | cut -f1)
sed -e "s/@VERSION@/$version/" -e "s/@SIZE@/$size/" "$own/debian/control.in" >"$control/control"
(cd "$work/tree" && find . -type f -not -path './DEBIAN/*' -printf '%P\0' | LC_ALL=C sort -z | xargs -0 md5sum) >"$control/md5sums"
find "$work/tree" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +
mkdir -p "$directory"
package=$directory/squeezy_${version}_amd64.deb
dpkg-deb --root-owner-group -Zxz --build "$work/tree" "$package" >/dev/null
say "$package"
