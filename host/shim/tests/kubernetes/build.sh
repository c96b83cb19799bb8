#!/usr/bin/env bash
# Prints the directory with a containerd that is newer than Debian's, crictl, critest and network plugins, built from
# their Go modules.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=../../../../scripts/common.sh
. "$(dirname "$0")/../../../../scripts/common.sh"

source=$root/host/shim/tests/kubernetes
programs=$cache/kubernetes/$(tree_hash "$source" | cut -c1-16)

go() {
	# These file systems need headers of C, and nobody here has them.
	(cd "$source" && CGO_ENABLED=0 GOFLAGS=-mod=readonly "$root/scripts/go.sh" "$1" -trimpath -ldflags=-s \
		-tags no_aufs,no_btrfs,no_devmapper,no_zfs "${@:2}")
}
build() {
	go build -v -o "$programs.new/" tool
	go test -v -c -o "$programs.new/" sigs.k8s.io/cri-tools/cmd/critest
}

if [ ! -d "$programs" ]; then
	hold_lock kubernetes >&2
fi
if [ ! -d "$programs" ]; then
	rm -rf "$programs.new"
	mkdir -p "$programs.new"
	log=$cache/logs/kubernetes.log
	with_progress "building containerd and crictl: packages" "$log" '^[a-z]' 0 "cannot build containerd and crictl: see $log" \
		build >&2
	mv "$programs.new" "$programs"
	keep_newest "$cache/kubernetes" 2
fi
echo "$programs"
