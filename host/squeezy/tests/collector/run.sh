#!/usr/bin/env bash
# Runs the OpenTelemetry collector, built from its Go modules with what the tests need (main.go).
# usage: host/squeezy/tests/collector/run.sh ARGUMENT...
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=../../../../scripts/common.sh
. "$(dirname "$0")/../../../../scripts/common.sh"

source=$root/host/squeezy/tests/collector
build() {
	cd "$source"
	"$root/scripts/go.sh" build -o "$programs.new/collector" .
}

build_programs "$source" "the collector" build
exec "$programs/collector" "$@"
