#!/usr/bin/env bash
# Builds an OCI image that installs containerd's runtime on nodes of a cluster: the files of Squeezy's packages,
# kubernetes/squeezy-node and busybox, on which it runs. The same packages give the same bytes.
# usage: packaging/node.sh DIRECTORY PACKAGE...; prints the path of the archive in DIRECTORY
#
# PACKAGEs are squeezy-guest and squeezy-shim, as packaging/debian.sh makes them.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=../scripts/common.sh
. "$(dirname "$0")/../scripts/common.sh"

directory=${1:?usage: packaging/node.sh DIRECTORY PACKAGE...}
: "${2:?usage: packaging/node.sh DIRECTORY PACKAGE...}"
shift
need dpkg-deb dpkg
need busybox busybox-static
: "${SOURCE_DATE_EPOCH:=$(git -C "$root" log -1 --format=%ct)}"
export SOURCE_DATE_EPOCH

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
umask 022
tree=$work/tree
mkdir -p "$tree/bin" "$tree/host" "$tree/tmp"
for package in "$@"; do
	dpkg-deb --extract "$package" "$tree"
done
install -m 755 /bin/busybox "$tree/bin/busybox"
install -D -m 644 /usr/share/doc/busybox-static/copyright "$tree/usr/share/doc/busybox-static/copyright"
# The shell has the others itself; these are for Kubernetes.
ln -s busybox "$tree/bin/sh"
ln -s busybox "$tree/bin/sleep"
install -m 755 "$root/packaging/kubernetes/squeezy-node" "$tree/usr/bin/squeezy-node"
tar --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner --format=gnu -C "$tree" -cf "$work/layer.tar" .
"$root/packaging/archive.sh" "$directory" squeezy-node "$(dpkg-deb -f "$1" Version)" "$work/layer.tar" \
	--config.env PATH=/usr/bin:/bin --config.entrypoint /usr/bin/squeezy-node --config.cmd install
