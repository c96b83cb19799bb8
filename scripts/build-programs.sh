#!/usr/bin/env bash
# Builds target/release/squeezy, and with --experiments beside it squeezy-bench, the shim that it measures, and
# squeezy-requests, which needs no C library.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=common.sh
. "$(dirname "$0")/common.sh"

case ${1:-} in
'') packages=(squeezy) crates=213 ;;
--experiments) packages=(squeezy squeezy-bench squeezy-shim) crates=306 ;;
*)
	echo "usage: scripts/build-programs.sh [--experiments]" >&2
	exit 2
	;;
esac

# One after the other: together they would have other features of their dependencies, which all are built again then.
programs() {
	local package
	for package in "${packages[@]}"; do
		(cd "$root" && cargo build --release -p "$package")
	done
	[ "${#packages[@]}" = 1 ] ||
		(cd "$root" && cargo build --release --target x86_64-unknown-linux-musl -p squeezy-requests)
}

mkdir -p "$build"
# What is built already is not counted, so the estimate is for a build from nothing.
[ ! -d "$root/target/release/deps" ] || crates=0
with_progress "programs: crates" "$cache/logs/programs.log" '^ *Compiling' $crates "cannot build the programs" programs
