#!/usr/bin/env bash
# Tests the squeezer with stock Nodes of all versions it knows, with and without its addon.
# usage: squeezers/v8/test.sh [--stress] [unittest argument...]
#        squeezers/v8/test.sh --measure [FILE]
#
# --stress tests longer, and with the node on the PATH and one that is not known as well. --measure prints the table
# of README.md instead, and writes a line of JSON for each of its rows to FILE. The Nodes come from PyPI, with pinned
# hashes, and are kept in $SQUEEZY_CACHE (~/.cache/squeezy).
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=../../scripts/common.sh
. "$(dirname "$0")/../../scripts/common.sh"
here=$root/squeezers/v8

stress=0
# For one module of tests, in seconds.
limit=2700
measure=0
case ${1:-} in
--stress) stress=1 limit=5400 && shift ;;
--measure) measure=1 && shift ;;
esac

need g++ g++
python3 -m pip --version >/dev/null 2>&1 || need pip3 python3-pip

directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
nodes=$(python3 "$here/tests/nodes.py" "$cache/node" 18 20 22)
if [ $stress = 1 ]; then
	unknown=$(python3 "$here/tests/nodes.py" "$cache/node" 24)
	export V8_UNKNOWN_NODE=${unknown#24=}/bin/node
	version=$(node -p process.versions.node 2>/dev/null || true)
	case $version in 18.* | 20.* | 22.*) nodes+=$'\n'$version=$(node -p 'path.dirname(path.dirname(process.execPath))') ;; esac
fi
"$here/build.sh" "$directory/with" >/dev/null
mkdir "$directory/without"
cp -r "$directory/with/preload.js" "$directory/with/lib" "$directory/without/"

export V8_NODES=$nodes
export SQUEEZY_TEST_STRESS=$stress PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=$root/squeezers
export V8_PRELOAD=$directory/with/preload.js V8_PRELOAD_WITHOUT_ADDON=$directory/without/preload.js
if [ $measure = 1 ]; then
	python3 "$here/measure/measure.py" "$@"
	exit
fi
cd "$here/tests"
if [ $# != 0 ]; then
	python3 "$root/scripts/run-unittest.py" "$@"
	exit
fi
"$root/squeezers/run-suites.sh" "$directory" $limit test_squeeze test_process test_socket test_addon
