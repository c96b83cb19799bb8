#!/usr/bin/env bash
# Builds a Debian package from what has been built in this checkout, with what debian/ has in a directory of its name. The
# same input gives the same bytes.
# usage: packaging/debian.sh squeezy|squeezy-guest|squeezy-shim DIRECTORY; prints the package's path in DIRECTORY
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=../scripts/common.sh
. "$(dirname "$0")/../scripts/common.sh"

usage="usage: packaging/debian.sh squeezy|squeezy-guest|squeezy-shim DIRECTORY"
name=${1:?$usage}
directory=${2:?$usage}
own=$root/packaging

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
chmod 755 "$work"
umask 022
"$own/install.sh" "$name" "$work/tree"
control=$work/tree/DEBIAN
mkdir "$control"
install -m 644 "$own/debian/$name/control.in" "$control/control"
for script in postinst prerm postrm; do
	[ ! -e "$own/debian/$name/$script" ] || install -m 755 "$own/debian/$name/$script" "$control"
done
[ ! -e "$own/debian/$name/conffiles" ] || install -m 644 "$own/debian/$name/conffiles" "$control"
"$own/pack.sh" "$work/tree" "$directory"
