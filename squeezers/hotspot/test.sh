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
# For one module of tests, in seconds.
limit=2700
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

export HOTSPOT_BUILD=$build_directory HOTSPOT_JDKS=$jdks
export SQUEEZY_TEST_STRESS=$stress PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=$root/squeezers
cd tests
[ $# = 0 ] || exec python3 "$root/scripts/run-unittest.py" "$@"
"$root/squeezers/run-suites.sh" "$build_directory" $limit test_stress test_residency test_busy test_attach test_refusal test_loading
