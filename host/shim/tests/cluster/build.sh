#!/usr/bin/env bash
# Prints the directory with the programs of a Kubernetes cluster, built from their Go modules.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=../../../../scripts/common.sh
. "$(dirname "$0")/../../../../scripts/common.sh"

source=$root/host/shim/tests/cluster

# They tell each other their version, which is in none of their files.
version=$(sed -n 's/.*k8s.io\/kubernetes \(v1[^ ]*\).*/\1/p' "$source/go.mod")
minor=${version#v1.}
variables=k8s.io/component-base/version
build() {
	cd "$source"
	# Two at a time: each of them takes gigabytes for Kubernetes' larger packages.
	nice -n 5 "$root/scripts/go.sh" build -p 2 \
		-ldflags="-s -X $variables.gitVersion=$version -X $variables.gitMajor=1 -X $variables.gitMinor=${minor%%.*}" \
		-o "$programs.new/" tool
}

build_programs "$source" Kubernetes build
echo "$programs"
