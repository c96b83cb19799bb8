#!/usr/bin/env bash
# Builds target/release/squeezy, and with --experiments beside it squeezy-bench, the shim that it measures, and
# squeezy-requests, which needs no C library. With --trial, builds target/trial/squeezy and the guest's programs
# instead.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=common.sh
. "$(dirname "$0")/common.sh"

packages=(squeezy) static_packages=() profile=release
case ${1:-} in
'') crates=213 ;;
--experiments) packages+=(squeezy-bench squeezy-shim) static_packages=(squeezy-requests) crates=370 ;;
--trial) static_packages=(squeezy-agent squeezy-workloads) profile=trial crates=293 ;;
*)
	echo "usage: scripts/build-programs.sh [--experiments | --trial]" >&2
	exit 2
	;;
esac

# One after the other: together they would have other features of their dependencies, which all are built again then.
programs() {
	local package
	for package in "${packages[@]}"; do
		(cd "$root" && cargo build --profile "$profile" -p "$package")
	done
	[ "${#static_packages[@]}" = 0 ] ||
		(cd "$root" && cargo build --profile "$profile" --target x86_64-unknown-linux-musl \
			"${static_packages[@]/#/--package=}")
}

mkdir -p "$build"
# What is built already is not counted, so the estimate is for a build from nothing.
[ ! -d "$root/target/$profile/deps" ] || crates=0
with_progress "programs: crates" "$cache/logs/programs.log" '^ *Compiling' $crates "cannot build the programs" programs
