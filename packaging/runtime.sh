#!/usr/bin/env bash
# Builds the Debian package of a runtime's image, which has been built in this checkout. The same input gives the same
# bytes.
# usage: packaging/runtime.sh NAME DIRECTORY; prints the package's path in DIRECTORY
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=../scripts/common.sh
. "$(dirname "$0")/../scripts/common.sh"

name=${1:?usage: packaging/runtime.sh NAME DIRECTORY}
directory=${2:?usage: packaging/runtime.sh NAME DIRECTORY}
own=$root/packaging
definition=$root/runtimes/$name/function.toml
[ -f "$definition" ] || die "there is no runtime $name"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
chmod 755 "$work"
umask 022
tree=$work/tree
for suffix in erofs toml; do
	file=images/runtime-$name.$suffix
	[ -e "$build/$file" ] || die "build/$file is missing: make runtimes"
	install -D -m 644 "$build/$file" "$tree/usr/lib/squeezy/$file"
done
documents=$tree/usr/share/doc/squeezy-runtime-$name
install -D -m 644 "$own/debian/runtime/copyright" "$documents/copyright"
"$own/contents.sh" "$name" >"$documents/packages"
mkdir "$tree/DEBIAN"
sed "s/@NAME@/$name/" "$own/debian/runtime/control.in" >"$tree/DEBIAN/control"
"$own/pack.sh" "$tree" "$directory"
