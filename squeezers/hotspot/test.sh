#!/usr/bin/env bash
# Tests the squeezer with JVMs of all versions and collectors it knows.
# usage: squeezers/hotspot/test.sh [--stress] [unittest argument...]
#
# --stress tests longer, more variants, and the JDKs in /usr/lib/jvm as well. The JVMs come from PyPI,
# with pinned hashes, and are kept in $SQUEEZY_CACHE (~/.cache/squeezy); javac and jvmti.h have to be there.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=../../scripts/common.sh
. "$(dirname "$0")/../../scripts/common.sh"
cd "$root/squeezers/hotspot"

stress=0
# For one file of tests, in seconds: one that takes longer has come to a standstill.
limit=900
if [ "${1:-}" = --stress ]; then
	stress=1
	limit=5400
	shift
fi

need gcc gcc
need make make
need javac openjdk-17-jdk-headless
python3 -m pip --version >/dev/null 2>&1 || need pip3 python3-pip

build_directory=$PWD/build
make --no-print-directory OUT="$build_directory" tests >"$build_directory.log" 2>&1 || {
	cat "$build_directory.log" >&2
	die "the squeezer does not build"
}
javac -Xlint:all -Werror --release 11 -d "$build_directory/classes" tests/java/*.java
jdks=$(python3 tests/jdks.py "$cache")
if [ $stress = 1 ]; then
	for release in /usr/lib/jvm/*/release; do
		version=$(sed -n 's/^JAVA_VERSION="\([0-9]*\).*/\1/p' "$release")
		case $version in 11 | 17 | 21 | 25) ;; *) continue ;; esac
		home=$(dirname "$release")
		[ -L "$home" ] || jdks+=$'\n'$version=$home
	done
fi

export HOTSPOT_BUILD=$build_directory HOTSPOT_JDKS=$jdks HOTSPOT_STRESS=$stress
export PYTHONDONTWRITEBYTECODE=1
cd tests
[ $# = 0 ] || exec python3 "$root/scripts/run-unittest.py" "$@"
# Two at a time, the longest first: each says something when it is done.
# shellcheck disable=SC2016 # it is another shell's $1
printf '%s\n' stress residency busy protocol attach refusal socket namespace | xargs -P 2 -I '{}' bash -c '
	timeout "$3" python3 "$4/scripts/run-unittest.py" "test_$1" >"$2/test_$1.log" 2>&1
	status=$?
	[ $status != 124 ] || echo "it took more than $3 s" >>"$2/test_$1.log"
	printf -- "--- %s: " "$1"
	if [ $status = 0 ]; then tail -1 "$2/test_$1.log"; else cat "$2/test_$1.log"; fi
	exit $status' test '{}' "$build_directory" $limit "$root" || die "a test has failed, see above"
