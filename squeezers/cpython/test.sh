#!/usr/bin/env bash
# Tests the squeezer with every CPython of this machine that it is for.
# usage: squeezers/cpython/test.sh [--stress] [PYTHON...]
#   --stress   longer races, and Python 3.14, which Maven fetches
set -euo pipefail
folder=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$folder/../.." && pwd)

stress=0
if [ "${1:-}" = --stress ]; then
	stress=1
	shift
fi

say() { printf '%s\n' "$*"; }

# The number that a Python has, as 311; nothing if it does not run, as a shim of pyenv may not.
version_of() { "$1" -c 'import sys; print("%d%02d" % sys.version_info[:2])' 2>/dev/null || true; }

# What there is: of the system, on the path, of pyenv. Each program once.
pythons() {
	local candidate
	for candidate in /usr/bin/python3.?? /usr/local/bin/python3.?? "${PYENV_ROOT:-$HOME/.pyenv}"/versions/3.*/bin/python3; do
		[ -x "$candidate" ] && [ "$(version_of "$candidate")" -ge 311 ] && readlink -f "$candidate"
	done | sort -u
}

cargo build --quiet --manifest-path "$root/Cargo.toml" -p squeezer
target=$(cargo metadata --manifest-path "$root/Cargo.toml" --no-deps --format-version 1 |
	python3 -c 'import json, sys; print(json.load(sys.stdin)["target_directory"])')
make --no-print-directory -C "$folder" >/dev/null

chosen=()
if [ $# -eq 0 ]; then
	mapfile -t chosen < <(pythons)
	[ $stress = 0 ] || chosen+=("$("$folder/tests/python314.sh")")
else
	for python in "$@"; do
		chosen+=("$(realpath --no-symlinks "$(command -v "$python")")")
	done
fi
[ ${#chosen[@]} -gt 0 ] || {
	echo "test.sh: there is no CPython of 3.11 or later: install one, or name one" >&2
	exit 1
}

export SQUEEZY_TEST_CLIENT=$target/debug/squeezer
export SQUEEZY_TEST_STRESS=$stress PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=$root/squeezers
cd "$folder/tests"
logs=$(mktemp -d)
jobs=()
# SIGTERM ends unittest with the programs that it has started: they lose their standard input.
trap 'kill "${jobs[@]}" 2>/dev/null || true; wait; rm -rf "$logs"' EXIT

# Beside each other: most of the time, a test waits for something.
for number in "${!chosen[@]}"; do
	SQUEEZY_TEST_PYTHON=${chosen[number]} python3 "$root/scripts/run-unittest.py" conformance test_*.py \
		>"$logs/$number" 2>&1 &
	jobs+=($!)
done
failed=0
for number in "${!chosen[@]}"; do
	status=0
	wait "${jobs[number]}" || status=$?
	say "--- ${chosen[number]}, $(version_of "${chosen[number]}"):"
	cat "$logs/$number"
	[ "$status" = 0 ] || failed=1
done
exit $failed
