#!/usr/bin/env bash
# Packs TREE as a Debian package. Its DEBIAN/control is complete but for @VERSION@ and @SIZE@. The same tree of the
# same commit gives the same bytes.
# usage: packaging/pack.sh TREE DIRECTORY; prints the package's path in DIRECTORY
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=../scripts/common.sh
. "$(dirname "$0")/../scripts/common.sh"

tree=${1:?usage: packaging/pack.sh TREE DIRECTORY}
directory=${2:?usage: packaging/pack.sh TREE DIRECTORY}
need dpkg-deb dpkg
version=$(sed -n 's/^version = "\(.*\)"/\1/p' "$root/Cargo.toml" | head -1)
# The time of what it is built from, for all files.
: "${SOURCE_DATE_EPOCH:=$(git -C "$root" log -1 --format=%ct)}"
export SOURCE_DATE_EPOCH

control=$tree/DEBIAN
# In KiB, each file rounded up, and one for whatever else there is: what directories take depends on the file system.
size=$(find "$tree" -path "$tree/DEBIAN" -prune -o -printf '%y %s\n' |
	awk '{ size += $1 == "f" ? int(($2 + 1023) / 1024) : 1 } END { print size }')
sed -i -e "s/@VERSION@/$version/g" -e "s/@SIZE@/$size/" "$control/control"
(cd "$tree" && find . -type f -not -path './DEBIAN/*' -printf '%P\0' | LC_ALL=C sort -z | xargs -0 md5sum) >"$control/md5sums"
find "$tree" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +
mkdir -p "$directory"
package=$directory/$(sed -n 's/^Package: //p' "$control/control")_${version}_amd64.deb
dpkg-deb --root-owner-group -Zxz --build "$tree" "$package" >/dev/null
say "$package"
