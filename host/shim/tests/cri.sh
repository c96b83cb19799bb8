#!/usr/bin/env bash
# Runs pods in a VM through CRI, as kubelet does: with Debian's containerd and two newer ones, and the shim as the image
# squeezy-node installs and removes it.
# usage: host/shim/tests/cri.sh SHIM
set -euo pipefail
if [ "${2-}" != inside ]; then
	containerds=$("$(dirname "$0")/containerds.sh" debian 2.2 newest)
fi
# shellcheck disable=SC2034 # it is for what is sourced
installer=image
# shellcheck source-path=SCRIPTDIR source=cri-common.sh
. "$(dirname "$0")/cri-common.sh"

mkdir "$work/pods" "$work/logs"
# What a container gets that asks for nothing, as kubelet says it.
paths='"masked_paths": ["/proc/acpi", "/proc/kcore", "/proc/keys", "/proc/version", "/sys/firmware"],
	"readonly_paths": ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"]'
# Each container has processes of its own (CONTAINER).
pid=1
# pod NAME: writes the configuration of a pod, with more of its "linux" in `linux`, `annotations`, and its `memory`.
pod() {
	cat >"$work/pods/$1.json" <<JSON
{"metadata": {"name": "$1", "namespace": "shop", "uid": "$1"}, "hostname": "$1", "log_directory": "$work/logs",
 "annotations": {${annotations-}},
 "linux": {"resources": {"memory_limit_in_bytes": ${memory-134217728}},
 "security_context": {"namespace_options": {"pid": $pid}}${linux-}}}
JSON
}
# container NAME SCRIPT: writes the configuration of a container that is a shell, with more of its own in `more`, of its
# security context in `security`, and its `memory`.
container() {
	python3 - "$2" >"$work/pods/$1.json" <<PYTHON
import json, sys
config = json.loads('''{"metadata": {"name": "$1"}, "image": {"image": "$image"}, "log_path": "$1.log"${more-},
 "linux": {"resources": {"memory_limit_in_bytes": ${memory-67108864}},
 "security_context": {"namespace_options": {"pid": $pid}, $paths${security-}}}}''')
print(json.dumps(config | {"command": ["sh", "-c", sys.argv[1]]}))
PYTHON
}
# start POD NAME...: makes and starts containers of a pod, whose id is in `ids`, which gets theirs.
start() {
	local pod=$1 name
	shift
	for name; do
		ids[$name]=$(crictl create "${ids[$pod]}" "$work/pods/$name.json" "$work/pods/$pod.json")
		crictl start "${ids[$name]}" >/dev/null
	done
}
declare -A ids
# what TEMPLATE NAME: a part of a container's status.
what() {
	crictl inspect -o go-template --template "{{.status.$1}}" "${ids[$2]}"
}
is() {
	[ "$(what "$1" "$2")" = "$3" ]
}
log_has() {
	[[ $(crictl logs "${ids[$1]}" 2>&1) == *"$2"* ]]
}

make_layer
mkdir "$work/layer/srv" "$work/layer/etc"
echo "root:x:0:0:root:/root:/bin/sh" >"$work/layer/etc/passwd"
make_image "$work/layer"
start_with_image
mounts >"$work/mounts"
echo "$(containerd --version | cut -d' ' -f3): a pod of two containers"
pod web
ids[web]=$(crictl runp --runtime squeezy "$work/pods/web.json")
# shellcheck disable=SC2016 # these are for the containers' shells
main='
	trap "echo is told; exit 7" TERM
	echo "$NAME $(cat /proc/sys/kernel/hostname) $(cat /etc/hostname) $(pwd) $HOME"
	busybox mkdir /data; busybox chown 7:8 /data; busybox ls -ln / | busybox awk "/data/ { print \$3, \$4 }"
	grep -E "Cap(Eff|Bnd)|NoNewPrivs|Seccomp:" /proc/self/status | busybox awk "{ print \$2 }"
	[ "$(busybox awk "/Seccomp_filters/ { print \$2 }" /proc/self/status)" -gt 1 ] && echo profile
	cat /proc/version; (echo 1 >/proc/sys/vm/drop_caches) 2>/dev/null || echo read-only
	busybox unshare -r true 2>/dev/null || echo closed
	exec 3<>/dev/ptmx; ls /dev/pts; echo error >&2
	busybox httpd -p 80 -h /etc
	while :; do sleep 0.1; done' side='
	echo "$HOME"; busybox id -u; busybox id -G; grep -E "Cap(Eff|Bnd)|NoNewPrivs" /proc/self/status | busybox awk "{ print \$2 }"
	busybox mkdir /tmp/new 2>&1; (echo x >/x) 2>/dev/null || echo read-only
	until busybox wget -q -O - http://127.0.0.1/hostname 2>/dev/null; do sleep 0.1; done
	exec sleep 100000'
# What an image's own start script does: it begins as user 0, makes things ready and becomes somebody else.
security=', "seccomp": {"profile_type": 0}' more=', "envs": [{"key": "NAME", "value": "shop"}], "working_dir": "/srv/new"' \
	container main "$main"
echo '{"defaultAction": "SCMP_ACT_ALLOW", "syscalls": [
	{"names": ["mkdir", "mkdirat"], "action": "SCMP_ACT_ERRNO", "errnoRet": 18}]}' >"$work/profile.json"
security=', "seccomp": {"profile_type": 2, "localhost_ref": "'$work/profile.json'"}, "no_new_privs": true,
	"run_as_user": {"value": 1000}, "run_as_group": {"value": 50}, "supplemental_groups": [7], "readonly_rootfs": true,
	"capabilities": {"add_capabilities": ["NET_ADMIN"], "drop_capabilities": ["CHOWN"]}' \
	container side "$side"
start web main side
until_true 120 log_has side web
until_true 120 log_has main ptmx
until_true 120 log_has main error
said=$(crictl logs "${ids[main]}" 2>"$work/error" | tr '\n' ' ')
expected='shop web web /srv/new /root 7 8 00000000a80425fb 00000000a80425fb 0 2 profile read-only closed 0 ptmx '
[ "$said" = "$expected" ] || die "main said: $said"
[ "$(cat "$work/error")" = error ] || die "main said: $(cat "$work/error")"
said=$(crictl logs "${ids[side]}" 2>&1 | tr '\n' ' ')
expected='/ 1000 50 7 0000000000000000 00000000a80425fa 1 mkdir: can'\''t create directory '\''/tmp/new'\'': Invalid cross-device link read-only web '
[ "$said" = "$expected" ] || die "side said: $said"
[ "$(pgrep -c qemu-system)" = 1 ] || die "there is not one VM"

echo "its state, processes and metrics"
for name in main side; do
	is state $name CONTAINER_RUNNING || die "$name is $(what state $name)"
done
# shellcheck disable=SC2016 # it is for the container's shell
said=$(crictl exec --sync "${ids[main]}" sh -c 'cat /data/file 2>/dev/null; echo own >/data/file; busybox id -u; echo $HOME; cat /data/file' | tr '\n' ' ')
[[ $said == "0 /root own "* ]] || die "it said: $said"
said=$(crictl exec --sync "${ids[main]}" sh -c 'echo error >&2; exit 3' 2>&1) && die "it did not fail: $said"
[[ $said == *"exited with 3: error"* ]] || die "it said: $said"
has_metrics() {
	crictl stats -o json --id "${ids[main]}" | python3 -c '
import json, sys
[stats] = json.load(sys.stdin)["stats"]
assert int(stats["memory"]["workingSetBytes"]["value"]) > 100_000, stats
assert int(stats["cpu"]["usageCoreNanoSeconds"]["value"]) > 0, stats'
}
until_true 120 has_metrics

echo "it reads its own limits, where runtimes look for them"
# shellcheck disable=SC2016 # it is for the container's shell
said=$(crictl exec --sync "${ids[main]}" sh -c '
	busybox awk '\''$5 == "/sys/fs/cgroup" { print $4, substr($6, 1, 2), $8 }'\'' /proc/self/mountinfo
	cat /proc/self/cgroup; cd /sys/fs/cgroup; cat memory.max memory.high cpu.max; cat memory.current 2>/dev/null
	for file in cgroup.* cpu.max memory.*; do (echo 1 >$file) 2>/dev/null && echo writes $file; done
	busybox mkdir new 2>/dev/null && echo makes; (: >/dev/mqueue/queue) && ls /dev/mqueue')
said=${said//$'\n'/ }
[ "$said" = "/ ro cgroup2 0::/ 67108864 max max 100000 queue" ] || die "it said: $said"
said=$(crictl exec --sync "${ids[side]}" sh -c 'ls /dev/mqueue')
[ "$said" = queue ] || die "the pod's other container said: $said"
crictl update --cpu-period 100000 --cpu-quota 50000 "${ids[side]}" >/dev/null
said=$(crictl exec --sync "${ids[side]}" cat /sys/fs/cgroup/cpu.max)
[ "$said" = "50000 100000" ] || die "the pod's other container reads $said of processors"

echo "a port of it is forwarded"
until_forwarded 120 hostname web crictl port-forward "${ids[web]}" 18080:80

echo "containerd restarts"
kill -9 "$containerd"
wait "$containerd" 2>/dev/null || true
start_containerd
until_true 120 is state main CONTAINER_RUNNING
crictl exec --sync "${ids[side]}" busybox id -u >/dev/null

# refused WORDS COMMAND...: fails if a command does not, or without these words.
refused() {
	local words=$1
	shift
	said=$("$@" 2>&1) && die "it ran: $said"
	[[ $said == *"$words"* ]] || die "it said: $said"
}

echo "a container's memory limit changes while it runs"
# Its memory is full before it writes the first byte.
container grows 'busybox dd if=/dev/zero bs=16M count=1 | { head -c 1 >/dev/null; echo holds; exec sleep 100000; }'
start web grows
until_true 120 log_has grows holds
# limit: what containerd has as the limit of its memory.
limit() {
	crictl inspect -o json "${ids[grows]}" |
		python3 -c 'import json, sys; print(json.load(sys.stdin)["info"]["runtimeSpec"]["linux"]["resources"]["memory"]["limit"] >> 20)'
}
# shown: the same as its programs read it, in MiB.
shown() {
	echo $(($(crictl exec --sync "${ids[grows]}" cat /sys/fs/cgroup/memory.max) >> 20))
}
# set_limit MIB
set_limit() {
	crictl update --memory $(($1 << 20)) "${ids[grows]}"
}
# take MIB [COUNT]: adds a process to it that has so much memory for a moment, or for longer: it fills it so often.
take() {
	crictl exec --sync "${ids[grows]}" busybox dd if=/dev/zero of=/dev/null bs="$1M" count="${2-1}"
}
# fill MIB: writes a file of this size in its root, instead of the one before.
fill() {
	crictl exec --sync "${ids[grows]}" busybox dd if=/dev/zero of=/tmp/file bs=1M count="$1"
}
refused "a memory limit of 256 MiB is more than the pod's partition of 128 MiB" set_limit 256
refused "bytes of private memory, not 8388608" set_limit 8
[ "$(limit)" = 64 ] || die "its limit is $(limit) MiB after what was refused"
[ "$(shown)" = 64 ] || die "it reads a limit of $(shown) MiB after what was refused"
# Files have half of it.
refused "No space left" fill 40
set_limit 96 >/dev/null
[ "$(limit)" = 96 ] || die "its limit is $(limit) MiB"
[ "$(shown)" = 96 ] || die "it reads a limit of $(shown) MiB"
fill 40 >/dev/null || die "its files have less than half of its new limit"
refused "MiB, not 32 MiB: remove some of them" set_limit 64
[ "$(limit)" = 96 ] || die "its limit is $(limit) MiB after what its files do not allow"
set_limit 128 >/dev/null
[ "$(shown)" = 128 ] || die "it reads a limit of $(shown) MiB, not its pod's partition"
set_limit 96 >/dev/null
crictl exec --sync "${ids[grows]}" busybox rm /tmp/file
# With what it holds, more than it might have before, and for longer than it takes to see that.
take 64 20 >/dev/null || die "it has less than its new limit"
set_limit 32 >/dev/null
is state grows CONTAINER_RUNNING || die "it is $(what state grows)"
take 24 1000000 >/dev/null 2>&1 && die "it may have more than its new limit"
until_true 120 is state grows CONTAINER_EXITED
is reason grows OOMKilled || die "it has ended because of: $(what reason grows)"
is exitCode grows 137 || die "it has ended with $(what exitCode grows)"
for name in main side; do
	is state $name CONTAINER_RUNNING || die "$name is $(what state $name)"
done
crictl rm "${ids[grows]}" >/dev/null

echo "what cannot be is refused with a sentence"
linux=', "sysctls": {"kernel.shm_rmid_forced": "1"}' pod odd
refused kernel.shm_rmid_forced crictl runp --runtime squeezy "$work/pods/odd.json"
more=', "devices": [{"container_path": "/dev/odd", "host_path": "/dev/null", "permissions": "r"}]' container odd true
refused /dev/odd start web odd
pid=0 container joins true
refused "sharing processes with one container" start web joins

echo "containers share their processes"
pid=0 pod shared
ids[shared]=$(crictl runp --runtime squeezy "$work/pods/shared.json")
pid=0 container seen 'exec sleep 12345'
# shellcheck disable=SC2016 # it is for the container's shell
pid=0 container sees '
	until [ "$found" ]; do
		for process in /proc/[0-9]*; do
			[ "$(busybox tr "\0" " " <$process/cmdline 2>/dev/null)" = "sleep 12345 " ] || continue
			kill ${process#/proc/}
			found=yes
		done
	done
	# What keeps their processes is not in their reach.
	kill -9 -1
	exec sleep 100000'
start shared seen sees
until_true 120 is state seen CONTAINER_EXITED
is exitCode seen 143 || die "it has ended with $(what exitCode seen)"
is state sees CONTAINER_RUNNING || die "it is $(what state sees)"
crictl stopp "${ids[shared]}" >/dev/null
crictl rmp "${ids[shared]}" >/dev/null

echo "a pod that has nothing to do is frozen until it has"
annotations='"dev.squeezy/freeze-after": "soon"' pod idle
refused "a number of seconds" crictl runp --runtime squeezy "$work/pods/idle.json"
annotations='"dev.squeezy/freeze-after": "1"' pod idle
ids[idle]=$(crictl runp --runtime squeezy "$work/pods/idle.json")
# Nothing is started for a tick, which would be computing. The end takes longer than it takes to be frozen.
# shellcheck disable=SC2016 # it is for the container's shell
container ticks '
	trap "sleep 4; exit 7" TERM
	busybox httpd -p 80 -h /etc
	busybox mkfifo /tmp/never; exec 3<>/tmp/never
	while :; do
		echo tick; read -t 0.3 nothing <&3
		while [ -e /tmp/computes ]; do i=$((i + 1)); [ $((i % 500)) = 0 ] && echo tick; done
	done'
start idle ticks
address=$(crictl inspectp -o go-template --template '{{.status.network.ip}}' "${ids[idle]}")
ticks() {
	wc -l <"$work/logs/ticks.log"
}
is_frozen() {
	local before
	before=$(ticks) || return
	sleep 1.5
	[ "$(ticks)" = "$before" ]
}
# answers SECONDS: whether it does in that time.
answers() {
	curl --silent --max-time "$1" --write-out '%{time_total}' "http://$address/hostname" >"$work/said"
	[ "$(head -n 1 "$work/said")" = idle ]
}
has_ticked() {
	[ "$(ticks)" -gt "$before" ]
}
for _ in 1 2 3 4 5; do
	until_true 120 is_frozen
	before=$(ticks)
	answers 60 || die "it has answered: $(cat "$work/said")"
	frozen=$(tail -n 1 "$work/said")
	until_true 120 has_ticked
	answers 60 || die "it has answered: $(cat "$work/said")"
	echo "	answered after $frozen s, and after $(tail -n 1 "$work/said") s when it ran"
done
until_true 120 is_frozen
is state ticks CONTAINER_RUNNING || die "containerd says that it is $(what state ticks)"
crictl stats --id "${ids[ticks]}" >/dev/null
is_frozen || die "being measured has thawed it"
# For longer than it takes to be frozen.
said=$(crictl exec --sync "${ids[ticks]}" sh -c 'sleep 3; echo slept')
[ "$said" = slept ] || die "it said: $said"
until_true 120 is_frozen
crictl exec --sync "${ids[ticks]}" busybox touch /tmp/computes
sleep 4
# If it were frozen now, nothing would thaw it.
before=$(ticks)
until_true 120 has_ticked
crictl exec --sync "${ids[ticks]}" busybox rm /tmp/computes
until_true 120 is_frozen
ctr --namespace k8s.io task pause "${ids[ticks]}"
answers 3 && die "it is paused and answers"
ctr --namespace k8s.io task resume "${ids[ticks]}"
answers 60 || die "it has answered: $(cat "$work/said")"
until_true 120 is_frozen
crictl stop --timeout 20 "${ids[ticks]}" >/dev/null
is exitCode ticks 7 || die "it has ended with $(what exitCode ticks)"
crictl stopp "${ids[idle]}" >/dev/null
crictl rmp "${ids[idle]}" >/dev/null

echo "free memory of a frozen pod is the host's"
# In a VM of its own, because its partition is larger.
annotations='"dev.squeezy/freeze-after": "1"' memory=268435456 pod large
ids[large]=$(crictl runp --runtime squeezy "$work/pods/large.json")
memory=268435456 container frees "$takes_for_a_while"
start large frees
vmm=$(pgrep --newest qemu-system)
until_true 120 has_resident "$vmm" 200
held=$(resident "$vmm")
crictl exec --sync "${ids[frees]}" busybox touch /tmp/enough >/dev/null
has_given_back() {
	[ $((held - $(resident "$vmm"))) -ge $((150 << 10)) ]
}
until_true 120 has_given_back
echo "	$(($(resident "$vmm") >> 10)) MiB of $((held >> 10)) MiB are left"
[ "$(crictl exec --sync "${ids[frees]}" cat /tmp/freed)" = freed ] || die "it has lost memory"
crictl stopp "${ids[large]}" >/dev/null
crictl rmp "${ids[large]}" >/dev/null

echo "containers end, one by one"
crictl stop --timeout 10 "${ids[main]}" >/dev/null
is exitCode main 7 || die "main has ended with $(what exitCode main)"
log_has main "is told" || die "main said: $(crictl logs "${ids[main]}" 2>&1)"
is state side CONTAINER_RUNNING || die "side is $(what state side)"
crictl rm "${ids[main]}" >/dev/null
crictl stop --timeout 0 "${ids[side]}" >/dev/null
is exitCode side 137 || die "side has ended with $(what exitCode side)"
# One that restarts, as after a crash.
start web main
until_true 120 log_has main error

echo "nothing is left after the pod"
crictl stopp "${ids[web]}" >/dev/null
crictl rmp "${ids[web]}" >/dev/null
until_true 120 no_vm_is_left
no_record_is_left || die "CRI has: $(crictl pods) $(crictl ps --all)"
mounts | diff "$work/mounts" - || die "there are other mounts than before"
no_link_is_left || die "there are network devices: $(busybox ip link)"
no_bundle_is_left || die "there are bundles"

kill "$containerd"
wait "$containerd" || true

echo "nothing is left of the shim"
squeezy_node remove
cmp /etc/containerd/config.toml "$work/config-before.toml" || die "containerd's configuration is another than before"
for file in /usr/local/bin/containerd-shim-squeezy-v2 /usr/lib/squeezy /var/lib/squeezy-shim /run/squeezy; do
	[ ! -e "$file" ] || die "$file is left"
done
