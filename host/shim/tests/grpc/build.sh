#!/usr/bin/env bash
# Prints the directory with `grpc` (main.go), built from its Go modules.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=../../../../scripts/common.sh
. "$(dirname "$0")/../../../../scripts/common.sh"

source=$root/host/shim/tests/grpc
build() {
	cd "$source"
	"$root/scripts/go.sh" build -o "$programs.new/" .
}

build_programs "$source" "a client and a server of gRPC" build
echo "$programs"
