#!/usr/bin/env bash
# Runs the tests of a function with the interpreter and the packages of its image.
# usage: scripts/test-function.sh FUNCTION_DIRECTORY
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=common.sh
. "$(dirname "$0")/common.sh"

function_directory=${1:?usage: scripts/test-function.sh FUNCTION_DIRECTORY}
tree=$("$root/guest/image/build.sh" --tree "$function_directory" | tail -1)
enter=(unshare --mount)
[ "$(id -u)" = 0 ] || enter+=(--map-root-user)
# An instance has /proc, too. What is mounted goes with the tests.
# shellcheck disable=SC2016 # for the shell inside
enter+=(sh -c 'mount --rbind /proc "$0/proc" && exec chroot "$0" "$@"' "$tree")
program=$(<"$root/functions/common/tests/function_test.py")
for test in "$function_directory"/tests/test_*.py; do
	say "$test"
	# As an argument and from standard input: the image is not written to.
	FUNCTION_DEFINITION=$(<"$function_directory/function.toml") PYTHONPATH=/function PYTHONDONTWRITEBYTECODE=1 \
		timeout 900 "${enter[@]}" /usr/bin/python3 -c "$program" <"$test"
done
