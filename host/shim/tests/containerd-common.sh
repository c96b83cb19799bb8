# What the tests with containerd share; to be sourced with the arguments SHIM ARGUMENT..., or SHIM inside PROGRAMS WORK
# ARGUMENT... in namespaces of its own. `containerds` has a line for each containerd to test with, the directories to look
# for programs in: Debian's if it is not set. `more_programs` are directories that come before these. With `cri`, containerd
# has its CRI plugin.
#
# Everything is in namespaces of its own, with a /run and a /var/lib of its own, and ends with them: nothing is left on
# the machine.
# shellcheck shell=bash

# A command that fails ends $(...), too, also if it is not the last one.
shopt -s inherit_errexit
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
if [ "${2-}" != inside ]; then
	[ -n "${containerds+set}" ] || containerds=$("$here/get-containerd.sh")
	# What was to build them may have failed, as in `containerds=$(...) containerd-vm.sh`, where that ends nothing.
	[ -n "$containerds" ] || {
		echo "${0##*/}: containerds is empty: set it to what host/shim/tests/containerds.sh prints, or unset it" >&2
		exit 1
	}
	mapfile -t each <<<"$containerds"
	work=$(mktemp -d "${TMPDIR:-/tmp}/squeezy-shim.XXXXXX")
	trap 'rm -rf "$work"' EXIT
	for programs in "${each[@]}"; do
		unshare --mount --net --ipc --uts --cgroup --pid --fork --kill-child --mount-proc \
			"$0" "$1" inside "${more_programs-}${more_programs:+:}$programs" "$work" "${@:2}"
	done
	exit
fi

shim=$1 programs=$3 work=$4
trap 'echo "${0##*/}: line $LINENO has failed: $BASH_COMMAND" >&2; tell' ERR
# What fails in a function ends the test without that.
trap '[ $? = 0 ] || [ -n "${told-}" ] || { echo "${0##*/}: ${FUNCNAME[0]-}, called in line ${BASH_LINENO[0]-}, has failed: $BASH_COMMAND" >&2; tell; }' EXIT
mount -t tmpfs tmpfs "$work"
mount -t tmpfs tmpfs /run
mount -t tmpfs tmpfs /var/lib
mkdir "$work/bin"
ln -s "$shim" "$work/bin/containerd-shim-squeezy-v2"
export PATH=$programs:$work/bin:$PATH
# That of containerd 2.2 and newer says in each call that control groups of version 1 are old.
if [[ $(containerd --version) == *"/containerd/v2 "* ]]; then
	mkdir "$work/first"
	cat >"$work/first/ctr" <<-SH
		#!/usr/bin/env bash
		{
			"$(command -v ctr)" "\$@" 2>&1 >&3 3>&- | sed --unbuffered '/DEPRECATION: The support for cgroup v1/d' >&2
			exit "\${PIPESTATUS[0]}"
		} 3>&1
	SH
	chmod +x "$work/first/ctr"
	export PATH=$work/first:$PATH
fi

# tell: what one needs to see why something has failed.
tell() {
	told=yes
	{
		echo "--- load: $(cat /proc/loadavg); memory: $(grep -E '^(MemTotal|MemAvailable|SwapFree):' /proc/meminfo | tr -s '\n ' ' ')"
		echo "--- processes"
		ps -eo pid,ppid,stat,etime,time,wchan:20,args | cut -c 1-200
		echo "--- tasks"
		timeout 20 ctr task ls
		timeout 20 ctr --namespace k8s.io task ls
		echo "--- places of pods"
		grep -H . /run/squeezy/shim/*/pods/* /run/squeezy/shim/*/servers/*.pods
		tail -n 40 "$work"/events "$work"/containerd.log /run/squeezy/shim/*/servers/*.log "$work"/{logs,cluster-logs}/*.log | cut -c 1-500
	} >&2 2>/dev/null || true
}
die() {
	echo "${0##*/}: $*" >&2
	tell
	exit 1
}

# until_true SECONDS COMMAND...: waits until a command succeeds. The time is for what never does, on the busiest machine.
until_true() {
	local end=$((SECONDS + $1))
	shift
	until "$@" >/dev/null 2>&1; do
		[ $SECONDS -lt $end ] || die "this never became true: $*: $("$@" 2>&1 | tail -n 5)"
		sleep 0.05
	done
}

# wait_for_all PROCESS...: fails if one of them has failed. `wait` alone says how the last one has ended.
wait_for_all() {
	local process
	for process; do
		wait "$process" || return
	done
}

disabled='"io.containerd.internal.v1.opt"'
[ -n "${cri-}" ] || disabled+=', "io.containerd.grpc.v1.cri"'
cat >"$work/config.toml" <<TOML
version = 2
root = "$work/root"
state = "/run/containerd"
disabled_plugins = [$disabled]
TOML

start_containerd() {
	containerd --config "$work/config.toml" >>"$work/containerd.log" 2>&1 &
	# shellcheck disable=SC2034 # whoever sources this ends it
	containerd=$!
	until_true 120 ctr version
}
# hear_events: writes containerd's events to `$work/events` from now on.
hear_events() {
	ctr events >"$work/events" 2>&1 &
	until_true 120 is_heard
}
# Whoever has an event of now has all that come later.
is_heard() {
	ctr image label "$image" heard="$SECONDS" && grep -q /images/update "$work/events"
}

# The lowest layer of an image, with Debian's static busybox.
make_layer() {
	mkdir -p "$work/layer/bin"
	cp /bin/busybox "$work/layer/bin/busybox"
	for command in sh echo cat head yes sleep; do
		ln -s busybox "$work/layer/bin/$command"
	done
}
# make_image DIRECTORY...: an image of these layers, the lowest first, for the user `user`, which may be USER:GROUP; its tag
# is the user or `test`. It is called `name` and executes `entrypoint`, in JSON: busybox and a shell if they are not set.
make_image() {
	local directory digests='' layers='' number=0 command='"Cmd":["sh"]' tag=${user:-test}
	[ -z "${entrypoint-}" ] || command='"Entrypoint":'$entrypoint
	mkdir -p "$work/image"
	for directory; do
		number=$((number + 1))
		tar -C "$directory" -cf "$work/image/$number.tar" .
		digests+=${digests:+,}\"sha256:$(sha256sum "$work/image/$number.tar" | cut -d' ' -f1)\"
		layers+=${layers:+,}\"$number.tar\"
	done
	echo '{"architecture":"amd64","os":"linux","config":{"Env":["PATH=/bin"],'"$command"',"User":"'"${user-}"'"},"rootfs":{"type":"layers","diff_ids":['"$digests"']}}' \
		>"$work/image/config.json"
	echo '[{"Config":"config.json","RepoTags":["'"${name:-busybox}:${tag%:*}"'"],"Layers":['"$layers"']}]' >"$work/image/manifest.json"
	tar -C "$work/image" -cf "$work/image.tar" .
}

image=docker.io/library/busybox:test
# run ID COMMAND...: as a user would, with more options of ctr in `options`; prints what the container prints.
run() {
	local memory=${memory:-134217728}
	# shellcheck disable=SC2086
	ctr run --rm ${options-} --memory-limit "$memory" --runtime io.containerd.squeezy.v2 "$image" "$@" </dev/null
}
# detach ID COMMAND...: the same, without waiting for its end.
detach() {
	ctr run --detach --null-io --memory-limit "${memory:-134217728}" --runtime io.containerd.squeezy.v2 "$image" "$@" </dev/null
}
has_status() {
	# Not through a pipe: ctr writes on when grep has found it, and would be killed.
	grep -q "^$1 .*$2" <<<"$(ctr task ls)"
}
# is_gone ID: whether containerd has no such task, also not one of a server that it has lost.
is_gone() {
	local tasks
	tasks=$(ctr task ls) && ! grep -q "^$1 " <<<"$tasks"
}
# metrics ID NAME: one of a container's.
metrics() {
	ctr task metrics "$1" | busybox awk -v name="$2" '$1 == name { print $2 }'
}
servers() {
	find /run/squeezy/shim -name '*.sock' | wc -l
}
remove() {
	ctr task kill --signal SIGKILL "$1"
	until_true 120 has_status "$1" STOPPED
	ctr task rm "$1" 2>/dev/null
	ctr container rm "$1"
}
# log: what the servers say.
log() {
	sort --stable --key=1,1 /run/squeezy/shim/*/servers/*.log
}
# reclaims: of servers' logs, how many pods have given back their memory.
reclaims() {
	grep -c 'the memory of a pod is back' || true
}
# resident QEMU: what is in memory of a VM's partitions, in KiB: they are the largest mapping of its QEMU. Its other memory
# grows with any pod, by whole huge pages.
resident() {
	busybox awk '$1 == "Size:" { size = $2 } $1 == "Rss:" && size > largest { largest = size; resident = $2 } END { print resident }' \
		"/proc/$1/smaps"
}
# has_resident QEMU MIB: whether as much of a VM's partitions is in memory.
has_resident() {
	[ "$(resident "$1")" -ge $(($2 << 10)) ]
}
# What a container runs that has 200 MiB until there is /tmp/enough, and has given them back when there is /tmp/freed.
# shellcheck disable=SC2016,SC2034 # it is for the container's shell, and for what is sourced
takes_for_a_while='
	busybox dd if=/dev/zero of=/dev/null bs=200M count=1000000 &
	until [ -e /tmp/enough ]; do sleep 0.2; done
	kill $!; wait; echo freed >/tmp/freed
	exec sleep 100000'
nothing_is_left() {
	[ "$(servers)" = 0 ] && [ -z "$(find /run/squeezy/shim/*/pods -type f)" ] &&
		! pgrep -f 'containerd-shim-squeezy-v2 serve|squeezy-pod' >/dev/null
}
no_vm_is_left() {
	nothing_is_left && ! pgrep qemu-system >/dev/null
}
