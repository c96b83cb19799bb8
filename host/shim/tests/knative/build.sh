#!/usr/bin/env bash
# Prints the directory with Knative's queue-proxy, and with `knative` (main.go), built from their Go modules.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=../../../../scripts/common.sh
. "$(dirname "$0")/../../../../scripts/common.sh"

source=$root/host/shim/tests/knative
build() {
	cd "$source"
	"$root/scripts/go.sh" build -o "$programs.new/" tool .
}

build_programs "$source" "Knative's queue-proxy" build
echo "$programs"
