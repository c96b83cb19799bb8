#!/usr/bin/env bash
# Runs the OpenTelemetry collector, built from its Go modules with what the tests need (main.go).
# usage: host/squeezy/tests/collector/run.sh ARGUMENT...
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=../../../../scripts/common.sh
. "$(dirname "$0")/../../../../scripts/common.sh"

source=$root/host/squeezy/tests/collector
program=$cache/collector/$(tree_hash "$source" | cut -c1-16)/collector
if [ ! -x "$program" ]; then
	hold_lock collector
fi
if [ ! -x "$program" ]; then
	mkdir -p "$(dirname "$program")" "$cache/logs"
	(cd "$source" && GOFLAGS=-mod=readonly "$root/scripts/go.sh" build -trimpath -ldflags=-s -o "$program.new" .) \
		>"$cache/logs/collector.log" 2>&1 ||
		die "cannot build the collector: $(tail -n 1 "$cache/logs/collector.log")"
	mv "$program.new" "$program"
	keep_newest "$cache/collector" 2
fi
exec "$program" "$@"
