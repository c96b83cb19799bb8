#!/usr/bin/env bash
# Tests all functions, each as a process of this machine, with Nodes 18, 20 and 22, and with the squeezer that gives
# free memory back.
# usage: functions/javascript/test.sh [unittest argument...]
#
# The Nodes come from PyPI, with pinned hashes, and are kept in $SQUEEZY_CACHE (~/.cache/squeezy).
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=../../scripts/common.sh
. "$(dirname "$0")/../../scripts/common.sh"
here=$root/functions/javascript

need g++ g++
python3 -m pip --version >/dev/null 2>&1 || need pip3 python3-pip
nodes=$(python3 "$root/squeezers/v8/tests/nodes.py" "$cache/node" 18 20 22)
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
"$root/squeezers/v8/build.sh" "$directory/squeezer" >/dev/null

export JAVASCRIPT_SQUEEZER=$directory/squeezer/preload.js PYTHONDONTWRITEBYTECODE=1
cd "$here/tests"
for node in $nodes; do
	say "--- Node ${node##*/}"
	JAVASCRIPT_NODE=${node#*=}/bin/node python3 "$root/scripts/run-unittest.py" "$@"
done
