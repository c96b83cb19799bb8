#!/usr/bin/env bash
# Builds the Java functions, starts each as a plain process and tests its answers.
# usage: functions/java/test.sh [--java HOME] [unittest argument...]
#
# --java runs them with the java of HOME, of JDK 11 or later, and not with the one in JAVA_HOME or PATH.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=../../scripts/common.sh
. "$(dirname "$0")/../../scripts/common.sh"

"$root/functions/java/build.sh"
if [ "${1:-}" = --java ]; then
	[ -x "${2:-}/bin/java" ] || die "${2:-} has no bin/java"
	export JAVA_HOME=$2
	shift 2
fi
cd "$root/functions/java/tests"
export PYTHONDONTWRITEBYTECODE=1
# Of all tests together, in seconds: longer is a standstill.
exec timeout 2700 python3 "$root/scripts/run-unittest.py" "$@"
