#!/usr/bin/env bash
# Runs the tests of a function with the interpreter and the packages of its image.
# usage: scripts/test-function.sh FUNCTION_DIRECTORY
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=common.sh
. "$(dirname "$0")/common.sh"

function_directory=${1:?usage: scripts/test-function.sh FUNCTION_DIRECTORY}
tree=$("$root/guest/image/build.sh" --tree "$function_directory" | tail -1)
enter=(chroot "$tree")
[ "$(id -u)" = 0 ] || enter=(unshare --map-root-user chroot "$tree")
program=$(<"$root/functions/common/tests/function_test.py")
for test in "$function_directory"/tests/test_*.py; do
	say "$test"
	# As an argument and from standard input: the image is not written to.
	FUNCTION_DEFINITION=$(<"$function_directory/function.toml") PYTHONPATH=/function PYTHONDONTWRITEBYTECODE=1 \
		timeout 120 "${enter[@]}" /usr/bin/python3 -c "$program" <"$test"
done
