#!/usr/bin/env bash
# Runs a program of Prometheus: prometheus or promtool, extracted from Debian's package, which would start a server
# if it were installed.
# usage: host/squeezy/tests/prometheus/run.sh PROGRAM ARGUMENT...
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=../../../../scripts/common.sh
. "$(dirname "$0")/../../../../scripts/common.sh"

debian_programs prometheus promtool prometheus
program=$1
shift
exec "$programs/$program" "$@"
