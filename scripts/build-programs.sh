#!/usr/bin/env bash
# Builds target/release/squeezy, and with --experiments target/release/squeezy-bench beside it.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=common.sh
. "$(dirname "$0")/common.sh"

case ${1:-} in
'') packages=(-p squeezy) crates=340 ;;
--experiments) packages=(-p squeezy -p squeezy-bench) crates=360 ;;
*)
	echo "usage: scripts/build-programs.sh [--experiments]" >&2
	exit 2
	;;
esac

programs() {
	(cd "$root" && cargo build --release "${packages[@]}")
}

mkdir -p "$build"
# What is built already is not counted, so the estimate is for a build from nothing.
[ -d "$root/target/release/deps" ] && crates=0
with_progress "programs: crates" "$cache/logs/programs.log" '^ *Compiling' $crates "cannot build the programs" programs
