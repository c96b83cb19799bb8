#!/bin/sh
# Runs the experiments and keeps lines and plots in bench/results: bench/record.sh [NAME...], all by
# default. Options for all of them: BENCH_ARGS="--trials 3". Wants a quiet machine: under emulation
# a neighbour that takes a processor shows up as milliseconds.
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
squeezy=${SQUEEZY:-$root/target/release/squeezy}
[ -x "$squeezy" ] || {
	echo "record: $squeezy is missing: make programs" >&2
	exit 1
}
# Without them, experiments about memory in a file show another machine.
"$squeezy" doctor | grep -A 1 '^slow *shared huge pages' >&2 || true
if [ $# = 0 ]; then
	for folder in "$root"/bench/results/*/; do
		set -- "$@" "$(basename "$folder")"
	done
fi

for name in "$@"; do
	folder=$root/bench/results/$name
	echo "== $name" >&2
	mkdir -p "$folder"
	# shellcheck disable=SC2086 # several words
	"$squeezy" bench "$name" --json "$folder/results.new" ${BENCH_ARGS:-}
	mv "$folder/results.new" "$folder/results.jsonl"
	"$squeezy" bench "$name" --from "$folder/results.jsonl" --plot "$folder/plot.svg" >/dev/null
done
"$squeezy" bench specification --checkout "$root"
