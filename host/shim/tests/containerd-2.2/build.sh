#!/usr/bin/env bash
# Prints the directory with containerd 2.2, its shim for runc, and ctr, built from their Go modules: the last containerd
# that asks shims for version 2 of their interface.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=../../../../scripts/common.sh
. "$(dirname "$0")/../../../../scripts/common.sh"

source=$root/host/shim/tests/containerd-2.2
build() {
	cd "$source"
	# These file systems need headers of C, and nobody here has them.
	"$root/scripts/go.sh" build -tags no_aufs,no_btrfs,no_devmapper,no_zfs -o "$programs.new/" tool
}

build_programs "$source" "containerd 2.2" build
echo "$programs"
