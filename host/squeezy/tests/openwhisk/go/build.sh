#!/usr/bin/env bash
# Prints the directory with `client`, which uses OpenWhisk's client for Go (main.go), built from its Go modules.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=../../../../../scripts/common.sh
. "$(dirname "$0")/../../../../../scripts/common.sh"

source=$root/host/squeezy/tests/openwhisk/go
build() {
	cd "$source"
	"$root/scripts/go.sh" build -o "$programs.new/client" .
}

build_programs "$source" "OpenWhisk's client for Go" build
echo "$programs"
