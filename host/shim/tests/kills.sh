#!/usr/bin/env bash
# Makes and deletes COUNT pods, several at a time, while servers, QEMU and containerd are killed, and has the kernel end a
# VM at its bound on memory: nothing is left.
# usage: host/shim/tests/kills.sh SHIM COUNT [SEED]
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
if [ "${2-}" != inside ]; then
	if [ -z "${in_own_cgroups-}" ]; then
		in_own_cgroups=yes exec "$here/own-cgroups.sh" "$0" "$@"
	fi
	containerds=$("$here/containerds.sh" debian)
fi
# shellcheck source-path=SCRIPTDIR source=cri-common.sh
. "$here/cri-common.sh"
# shellcheck source-path=SCRIPTDIR source=cgroup-common.sh
. "$here/cgroup-common.sh"
# As kubelet does; both may be the same.
mkdir -p "$pods_group" "$pods_memory_group"

count=$5 seed=${6:-$(date +%s)}
workers=4 attempts=4
mkdir "$work/pods"
: >"$work/done"

# pod NAME VM: writes the configuration of a pod.
pod() {
	cat >"$work/pods/$1.json" <<JSON
{"metadata": {"name": "$1", "namespace": "shop", "uid": "$1"}, "hostname": "$1", "annotations": {"dev.squeezy/vm": "$2"},
 "linux": {"cgroup_parent": "/kubepods/burstable/pod$1", "resources": {"memory_limit_in_bytes": 134217728, "cpu_shares": 512}}}
JSON
}
cat >"$work/pods/container.json" <<JSON
{"metadata": {"name": "main"}, "image": {"image": "$image"}, "command": ["sh", "-c", "echo ready; exec sleep 100000"],
 "linux": {"resources": {"cpu_shares": 640}}}
JSON
# run_pod NAME VM: runs a pod with a container, or fails.
run_pod() {
	local id container
	pod "$1" "$2"
	id=$(crictl runp --runtime squeezy "$work/pods/$1.json") &&
		container=$(crictl create "$id" "$work/pods/container.json" "$work/pods/$1.json") &&
		crictl start "$container" >/dev/null &&
		[ "$(crictl exec --sync "$container" echo "$1")" = "$1" ]
}
# is_removed NAME: whether there is no such pod any more, after an attempt to remove it.
is_removed() {
	local ids
	ids=$(crictl pods --quiet --name "^$1\$") || return 1
	[ -n "$ids" ] || return 0
	# shellcheck disable=SC2086 # several, if containerd was killed
	crictl stopp $ids >/dev/null 2>&1 && crictl rmp --force $ids >/dev/null 2>&1 && return 1
	return 1
}
# work FIRST: every so many pods, from this one on, in VMs drawn at random.
work() {
	local number name vm
	RANDOM=$((seed + $1))
	for ((number = $1; number < count; number += workers)); do
		name=pod-$number
		vm=$((RANDOM % 3))
		[ "$vm" = 0 ] && vm=steady
		# As kubelet, which tries again.
		for _ in $(seq $attempts); do
			if run_pod "$name" "$vm" >"$work/said-$1" 2>&1; then echo well; else echo badly; fi >"$work/last-$1"
			# A call to a server that was killed meanwhile may fail, and the next one does not.
			until_true 240 is_removed "$name"
			[ "$(cat "$work/last-$1")" = badly ] || break
		done
		cat "$work/last-$1" >>"$work/done"
	done
}
# steady_log: what the server of the VM that nobody kills says.
steady_log() {
	cat /run/squeezy/shim/*/servers/"$steady.log"
}
# back COUNT: whether so many pods of that VM have given back their memory.
back() {
	[ "$(steady_log | reclaims)" -ge "$1" ]
}

make_layer
make_image "$work/layer"
start_with_image
mounts >"$work/mounts"

echo "a VM that nobody kills"
run_pod keeper steady 2>"$work/said" || die "the first pod does not run"
keeper=$(crictl pods --quiet)
steady=$(basename "$(readlink -f /run/squeezy/shim/*/servers/*.sock)" .sock)
group=$(vm_groups)
[[ ${group##*/} == "squeezy-$steady-"* ]] || die "its control group is ${group:-missing}: $(steady_log)"
is_in "$group" "$(pgrep qemu-system)" || die "QEMU is not in its control group"
has_shares "$group" 640 || die "it has $(cat "$group/cpu.shares") shares"
run_pod visitor steady 2>"$work/said" || die "the second pod does not run"
has_shares "$group" 1280 || die "both have $(cat "$group/cpu.shares") shares"
until_true 120 is_removed visitor
until_true 120 back 1
crictl update --cpu-share 1024 "$(crictl ps --quiet)" >/dev/null
# 1024 for its container instead of 640.
has_shares "$group" 1024 || die "with other shares of its container it has $(cat "$group/cpu.shares")"
at_start=$(steady_log | plugged)
[ "${at_start:-0}" -gt 0 ] || die "the server does not say how much memory its pods have"

echo "$count pods, and kills (seed $seed)"
RANDOM=$seed
started=()
for worker in $(seq 0 $((workers - 1))); do
	work "$worker" &
	started+=("$!")
done
# kill_one PATTERN: kills one of the processes whose command lines match, at random, but for those of that VM; fails if
# there is none.
kill_one() {
	local found
	mapfile -t found < <(pgrep -af "$1" | grep -v -e "$steady" -e pgrep | cut -d' ' -f1)
	[ "${#found[@]}" != 0 ] && kill -9 "${found[$((RANDOM % ${#found[@]}))]}" 2>/dev/null
}
# By turns, and each when some more pods have ended: so a busy machine has no more of them for its pods than another one.
kills=(0 0 0) turn=0 next=1
while kill -0 "${started[@]}" 2>/dev/null; do
	sleep "$((RANDOM % 5)).$((RANDOM % 10))"
	ended=$(wc -l <"$work/done")
	[ "$ended" -ge $next ] || continue
	case $turn in
	0) kill_one '^[^ ]*containerd-shim-squeezy-v2 serve' || continue ;;
	1) kill_one '^[^ ]*qemu-system' || continue ;;
	2)
		kill -9 "$containerd"
		wait "$containerd" 2>/dev/null || true
		start_containerd
		;;
	esac
	kills[turn]=$((kills[turn] + 1))
	turn=$(((turn + 1) % 3))
	next=$((ended + 1 + RANDOM % 6))
done
wait_for_all "${started[@]}" || die "a pod cannot be deleted"
well=$(grep -c well "$work/done" || true)
echo "$well pods ran and $((count - well)) did not, with ${kills[0]} kills of servers, ${kills[1]} of QEMU and ${kills[2]} of containerd, in $SECONDS s"
[ "$(wc -l <"$work/done")" = "$count" ] || die "these are not all"
# containerd has the last turn: there are not fewer of the others.
[ "${kills[2]}" -ge $((count / 40)) ] || die "these are too few kills"
# A kill meets hardly every second attempt, and a pod has four: of 40, two or three may not run.
[ "$well" -ge $((count * 3 / 4)) ] || die "too few pods ran, the last did not because: $(cat "$work"/said-*)"

echo "nothing is left beside the VM that nobody has killed"
[ "$(crictl pods --quiet)" = "$keeper" ] || die "CRI has: $(crictl pods)"
only_one_vm() {
	[ "$(pgrep -c qemu-system)" = 1 ] && [ "$(servers)" = 1 ] &&
		[ "$(find /run/squeezy/shim/*/pods -type f | wc -l)" = 1 ] && [ "$(pgrep -fc squeezy-pod)" = 1 ]
}
until_true 120 only_one_vm
run_pod visitor steady 2>"$work/said" || die "it takes no pods any more"
before=$(steady_log | reclaims)
until_true 120 is_removed visitor
until_true 120 back $((before + 1))
[ "$(steady_log | plugged)" = "$at_start" ] || die "its pods have $(steady_log | plugged) bytes instead of $at_start"
has_shares "$group" 1024 || die "it has $(cat "$group/cpu.shares") shares"

echo "a VM that takes more than its bound is ended, and nobody else"
steady_vm=$(pgrep qemu-system)
run_pod greedy bounded 2>"$work/said" || die "the pod does not run"
bounded=$(vm_groups | grep -vFx "$group")
[[ $bounded == */squeezy-*-* && $bounded != *$'\n'* ]] || die "these are the groups of VMs: $(vm_groups)"
server=${bounded##*-}
bounded_vm=$(pgrep qemu-system | grep -vFx "$steady_vm")
# bounded_log: what that server says.
bounded_log() {
	local name=${bounded%-*}
	cat /run/squeezy/shim/*/servers/"${name##*/squeezy-}.log"
}
container=$(crictl ps --quiet --pod "$(crictl pods --quiet --name '^greedy$')")
# Hardly more than it has, and nothing is swapped. The rest of what it has may be page cache, but not as much as it takes.
memory=$pods_memory_group/${bounded##*/}
echo 0 >"$memory/memory.swappiness"
echo $(($(cat "$memory/memory.usage_in_bytes") + (8 << 20))) >"$memory/memory.limit_in_bytes"
crictl exec --sync "$container" busybox dd if=/dev/zero of=/dev/null bs=96M count=1 >"$work/said" 2>&1 || true
vm_has_ended() {
	! kill -0 "$bounded_vm"
}
until_true 120 vm_has_ended
has_exited() {
	[ "$(crictl inspect -o go-template --template '{{.status.state}} {{.status.exitCode}}' "$container")" = "CONTAINER_EXITED 255" ]
}
until_true 120 has_exited
# By the server, which is the same, and ends when containerd knows.
server_has_ended() {
	! kill -0 "$server"
}
until_true 120 server_has_ended
for line in "the VM has ended: .*ran out of memory" "no task is left"; do
	grep -q "$line" <<<"$(bounded_log)" || die "its server says: $(bounded_log)"
done
[ "$(pgrep qemu-system)" = "$steady_vm" ] || die "another VM has ended with it, or has come"
[ "$(crictl exec --sync "$(crictl ps --quiet)" echo hello)" = hello ] || die "another pod has ended with it"
run_pod next bounded 2>"$work/said" || die "no pod runs after it: $(cat "$work/said")"
[ "$(pgrep -c qemu-system)" = 2 ] || die "it is in no new VM"
for name in greedy next; do
	until_true 120 is_removed "$name"
done
until_true 120 only_one_vm

until_true 120 is_removed keeper
until_true 120 no_vm_is_left
no_vm_group_is_left || die "there are control groups: $(vm_groups)"
no_bundle_is_left || die "there are bundles"
# A containerd that is killed while it makes a pod may forget the network namespace that it has made, but no device of
# ours is in one.
for namespace in /run/netns/*; do
	[ -e "$namespace" ] || continue
	devices=$(busybox nsenter --net="$namespace" busybox ip link)
	[[ $devices != *squeezy* ]] || die "there is a device: $devices"
	echo "containerd has left ${namespace##*/}"
	umount "$namespace"
	rm "$namespace"
done
mounts | diff "$work/mounts" - || die "there are other mounts than before"
until_true 120 no_link_is_left
kill "$containerd"
