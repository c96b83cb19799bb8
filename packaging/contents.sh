#!/usr/bin/env bash
# Prints the packages of Debian in a runtime's image, which has been built in this checkout, with their
# versions.
# usage: packaging/contents.sh NAME
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=../scripts/common.sh
. "$(dirname "$0")/../scripts/common.sh"

tree=$("$root/guest/image/build.sh" --tree "$root/runtimes/${1:?usage: packaging/contents.sh NAME}" | tail -1)
dpkg-query --admindir="$tree/var/lib/dpkg" --show --showformat='${Package} ${Version}\n'
