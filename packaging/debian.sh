#!/usr/bin/env bash
# Builds the Debian package from what has been built in this checkout. The same input gives the same bytes.
# usage: packaging/debian.sh DIRECTORY; prints the package's path in it
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=../scripts/common.sh
. "$(dirname "$0")/../scripts/common.sh"

directory=${1:?usage: packaging/debian.sh DIRECTORY}
own=$root/packaging

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
chmod 755 "$work"
umask 022
"$own/install.sh" "$work/tree"
control=$work/tree/DEBIAN
mkdir "$control"
install -m 755 "$own"/debian/{postinst,prerm,postrm} "$control"
install -m 644 "$own/debian/conffiles" "$control"
install -m 644 "$own/debian/control.in" "$control/control"
"$own/pack.sh" "$work/tree" "$directory"
