#!/usr/bin/env bash
# Prints the directory with a containerd, its shim for runc, and ctr, built from the Go modules in containerd-VERSION/.
# usage: host/shim/tests/build-containerd.sh VERSION
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=../../../scripts/common.sh
. "$(dirname "$0")/../../../scripts/common.sh"

source=$root/host/shim/tests/containerd-${1-}
if [ ! -d "$source" ]; then
	sed -n '/^# usage: /s/^# //p' "$0" >&2
	exit 2
fi
build() {
	cd "$source"
	# These file systems need headers of C, and nobody here has them.
	"$root/scripts/go.sh" build -tags no_aufs,no_btrfs,no_devmapper,no_zfs -o "$programs.new/" tool
}

build_programs "$source" "containerd $1" build
echo "$programs"
