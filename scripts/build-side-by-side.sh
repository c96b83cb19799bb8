#!/usr/bin/env bash
# Builds what `make run` needs side by side, after saying about how long that takes.
#
# usage: scripts/build-side-by-side.sh [FUNCTION=DIRECTORY]
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=common.sh
. "$(dirname "$0")/common.sh"

# What each takes from nothing, in seconds of one processor, as measured on two virtual processors on 2026-11-29, and what
# is installed before it, in seconds.
kernel=1400 image=50 programs=550 tools=70

# say_how_long: says how long it takes here, if it takes long.
say_how_long() {
	local seconds=0 processors minutes
	processors=$(nproc)
	[ -e "$cache/kernel/objects/release/vmlinux" ] || seconds=$((seconds + kernel))
	[ -d "$cache/image" ] || seconds=$((seconds + image))
	[ -d "$root/target/trial/deps" ] || seconds=$((seconds + programs))
	seconds=$((seconds / processors))
	command -v ccache >/dev/null || seconds=$((seconds + tools))
	minutes=$(((seconds + 59) / 60))
	[ "$minutes" -le 1 ] ||
		say "building the guest's kernel, an image and the programs: about $minutes minutes on $processors processors, once"
}

say_how_long
# Each shows its progress on lines of its own, as if this were no terminal.
"${MAKE:-make}" -C "$root" --no-print-directory -j3 kernel-release function-image trial "$@" | cat
