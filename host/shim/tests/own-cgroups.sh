#!/usr/bin/env bash
# Runs a command in control groups of its own, which are removed when it has ended: for what makes groups at the top of
# what it sees, as kubelet does.
# usage: host/shim/tests/own-cgroups.sh COMMAND...
set -euo pipefail

name=squeezy-test.$$
# Its own groups: those that it makes are below them, so that they count to the same.
groups=()
while IFS=: read -r _ controllers group; do
	[ -n "$controllers" ] || continue
	groups+=("/sys/fs/cgroup/${controllers#name=}${group%/}")
done </proc/self/cgroup
[ ${#groups[@]} -gt 0 ] || {
	echo "${0##*/}: this machine has control groups of version 2 only, and this is written for version 1: see CONTRIBUTING.md" >&2
	exit 1
}
remove() {
	local group
	for group in "${groups[@]}"; do
		echo $$ >"$group/cgroup.procs"
		# A group is empty a moment after its last process has ended.
		for _ in $(seq 100); do
			[ -d "$group/$name" ] || break
			find "$group/$name" -depth -type d -exec rmdir {} + 2>/dev/null || sleep 0.1
		done
		[ ! -d "$group/$name" ] ||
			echo "${0##*/}: $group/$name is left: end what is in its cgroup.procs, and remove it with rmdir" >&2
	done
}
trap remove EXIT
for group in "${groups[@]}"; do
	mkdir "$group/$name"
	if [ -e "$group/cpuset.cpus" ]; then
		for file in cpuset.cpus cpuset.mems; do
			cat "$group/$file" >"$group/$name/$file"
		done
	fi
	echo $$ >"$group/$name/cgroup.procs"
done
"$@"
