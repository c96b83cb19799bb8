#!/usr/bin/env bash
# Prints the directory with a containerd that is newer than Debian's, its shim for runc, crictl, critest and network
# plugins, built from their Go modules.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=../../../../scripts/common.sh
. "$(dirname "$0")/../../../../scripts/common.sh"

source=$root/host/shim/tests/kubernetes

go() {
	# These file systems need headers of C, and nobody here has them.
	"$root/scripts/go.sh" "$1" -tags no_aufs,no_btrfs,no_devmapper,no_zfs "${@:2}"
}
build() {
	cd "$source"
	go build -o "$programs.new/" tool
	go test -c -o "$programs.new/" sigs.k8s.io/cri-tools/cmd/critest
}

build_programs "$source" "containerd and crictl" build
echo "$programs"
