# Control groups for tests; to be sourced in the namespaces of a test that own-cgroups.sh runs.
# shellcheck shell=bash

# Those of this test are the top of what its programs see.
hierarchies=$(cut -d: -f2 /proc/self/cgroup)
mount -t tmpfs tmpfs /sys/fs/cgroup
for controllers in $hierarchies; do
	mkdir "/sys/fs/cgroup/${controllers#name=}"
	[[ $controllers != name=* ]] || controllers=none,$controllers
	mount -t cgroup -o "$controllers" cgroup "/sys/fs/cgroup/${controllers#none,name=}"
done

# pods_group_of CONTROLLER: the one of all pods.
pods_group_of() {
	echo "$(busybox awk -v of="(^|,)$1(,|\$)" '$3 == "cgroup" && $4 ~ of { print $2 }' /proc/self/mounts | tail -n 1)/kubepods"
}
pods_group=$(pods_group_of cpu)
pods_memory_group=$(pods_group_of memory)

# vm_groups: the groups of VMs.
vm_groups() {
	find "$pods_group" -mindepth 1 -maxdepth 1 -name 'squeezy-*'
}
# has_shares GROUP SHARES: what a group has of the processors.
has_shares() {
	[ "$(cat "$1/cpu.shares")" = "$2" ]
}
# bound GROUP: the most memory that the processes of a group may have, in bytes.
bound() {
	cat "$pods_memory_group/${1##*/}/memory.limit_in_bytes"
}
# has_bound GROUP BYTES: whether that is it but for a little, as the kernel counts in pages.
has_bound() {
	local more=$(($(bound "$1") - $2))
	[ "${more#-}" -lt $((1 << 20)) ]
}
# is_in GROUP PROCESS
is_in() {
	grep -qx "$2" "$1/cgroup.procs"
}
# no_vm_group_is_left: fails also if there are no groups to look into.
no_vm_group_is_left() {
	[ -d "$pods_group" ] && [ -d "$pods_memory_group" ] &&
		[ -z "$(vm_groups)$(find "$pods_memory_group" -mindepth 1 -maxdepth 1 -name 'squeezy-*')" ]
}
