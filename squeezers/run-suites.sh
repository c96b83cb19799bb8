#!/usr/bin/env bash
# Runs the conformance suite and test modules, of the directory where it is started, two at a time: each says
# something when it is done.
# usage: squeezers/run-suites.sh LOGS SECONDS MODULE...
#   LOGS       a directory for what they print
#   SECONDS    for each of them: one that takes longer has come to a standstill
#   MODULE...  those that take longest first
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=../scripts/common.sh
. "$(dirname "$0")/../scripts/common.sh"
logs=$1 limit=$2
shift 2

mapfile -t conformance < <(cd "$root/squeezers" && printf '%s\n' conformance/test_*.py | sed 's|/|.|; s|\.py$||')
# shellcheck disable=SC2016 # it is another shell's $1
printf '%s\n' "$@" "${conformance[@]}" | xargs -P 2 -I '{}' bash -c '
	timeout "$3" python3 "$4/scripts/run-unittest.py" "$1" >"$2/$1.log" 2>&1
	status=$?
	[ $status != 124 ] || echo "it took more than $3 s" >>"$2/$1.log"
	printf -- "--- %s: " "$1"
	if [ $status = 0 ]; then tail -1 "$2/$1.log"; else cat "$2/$1.log"; fi
	exit $status' test '{}' "$logs" "$limit" "$root" || die "a test has failed, see above"
