#!/usr/bin/env bash
# Drives a shim with Debian's containerd and ctr.
# usage: host/shim/tests/containerd.sh SHIM
#
# Everything is in namespaces of its own, with a /run of its own, and ends with them: nothing is left on the machine.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
if [ "${2-}" != inside ]; then
	programs=$("$here/get-containerd.sh")
	work=$(mktemp -d "${TMPDIR:-/tmp}/squeezy-shim.XXXXXX")
	trap 'rm -rf "$work"' EXIT
	unshare --mount --net --ipc --uts --cgroup --pid --fork --kill-child --mount-proc \
		"$0" "$1" inside "$programs" "$work"
	exit
fi

shim=$1 programs=$3 work=$4
mount -t tmpfs tmpfs "$work"
mount -t tmpfs tmpfs /run
mkdir "$work/bin"
ln -s "$shim" "$work/bin/containerd-shim-squeezy-v2"
export PATH=$programs:$work/bin:$PATH

die() {
	echo "containerd.sh: $*" >&2
	tail -n 20 "$work"/containerd.log /run/squeezy/shim/*/servers/*.log >&2 || true
	exit 1
}

# until SECONDS COMMAND...: waits until a command succeeds.
until_true() {
	local end=$((SECONDS + $1))
	shift
	until "$@" >/dev/null 2>&1; do
		[ $SECONDS -lt $end ] || die "this never became true: $*"
		sleep 0.05
	done
}

cat >"$work/config.toml" <<TOML
version = 2
root = "$work/root"
state = "/run/containerd"
disabled_plugins = ["io.containerd.grpc.v1.cri", "io.containerd.internal.v1.opt"]
TOML

start_containerd() {
	containerd --config "$work/config.toml" >>"$work/containerd.log" 2>&1 &
	containerd=$!
	until_true 60 ctr version
}

# An image of one layer, with Debian's static busybox.
make_image() {
	local layer diff_id
	mkdir -p "$work/layer/bin" "$work/image"
	cp /bin/busybox "$work/layer/bin/busybox"
	for command in sh echo cat head yes sleep; do
		ln -s busybox "$work/layer/bin/$command"
	done
	layer=$work/image/layer.tar
	tar -C "$work/layer" -cf "$layer" .
	diff_id=$(sha256sum "$layer" | cut -d' ' -f1)
	echo '{"architecture":"amd64","os":"linux","config":{"Env":["PATH=/bin"]},"rootfs":{"type":"layers","diff_ids":["sha256:'"$diff_id"'"]}}' \
		>"$work/image/config.json"
	echo '[{"Config":"config.json","RepoTags":["busybox:test"],"Layers":["layer.tar"]}]' >"$work/image/manifest.json"
	tar -C "$work/image" -cf "$work/image.tar" manifest.json config.json layer.tar
}

image=docker.io/library/busybox:test
# run ID COMMAND...: as a user would; prints what the container prints.
run() {
	local memory=${memory:-134217728}
	ctr run --rm --memory-limit "$memory" --runtime io.containerd.squeezy.v2 "$image" "$@" </dev/null
}
# detach ID COMMAND...: the same, without waiting for its end.
detach() {
	ctr run --detach --null-io --memory-limit "${memory:-134217728}" --runtime io.containerd.squeezy.v2 "$image" "$@" </dev/null
}
has_status() {
	ctr task ls | grep -q "^$1 .*$2"
}
servers() {
	find /run/squeezy/shim -name '*.sock' | wc -l
}
remove() {
	ctr task kill --signal SIGKILL "$1"
	until_true 30 has_status "$1" STOPPED
	ctr task rm "$1" 2>/dev/null
	ctr container rm "$1"
}
nothing_is_left() {
	[ "$(servers)" = 0 ] && [ -z "$(find /run/squeezy/shim/*/pods -type f)" ] &&
		! pgrep -f 'containerd-shim-squeezy-v2 serve|squeezy-pod' >/dev/null
}

make_image
start_containerd
ctr image import "$work/image.tar" >/dev/null
ctr events >"$work/events" 2>&1 &
until_true 10 [ -e "$work/events" ]

echo "output, and the exit status"
for number in $(seq 20); do
	said=$(run "echo-$number" sh -c "echo out $number; echo error $number >&2" 2>&1 | sort | tr '\n' ' ') || die "run $number failed: $said"
	[ "$said" = "error $number out $number " ] || die "run $number has said: $said"
done
[ "$(run much sh -c 'yes abcdefg | head -c 8388608' | wc -c)" = 8388608 ] || die "output was lost"
status=0
run status sh -c 'exit 7' || status=$?
[ "$status" = 7 ] || die "status $status instead of 7"

echo "events are in order"
events_of() {
	grep -o "/tasks/[a-z]* .*\"container_id\":\"$1\"" "$work/events" | cut -d' ' -f1 | tr '\n' ' '
}
until_true 10 grep -q '/tasks/delete.*"status"' "$work/events"
[ "$(events_of status)" = "/tasks/create /tasks/start /tasks/exit /tasks/delete " ] ||
	die "events: $(events_of status)"

echo "what cannot be is refused with a sentence"
said=$(ctr run --rm --runtime io.containerd.squeezy.v2 "$image" unlimited echo hello </dev/null 2>&1) && die "it ran"
[[ $said == *"the pod has no memory limit"* ]] || die "it said: $said"
said=$(ctr run --rm --memory-limit 134217728 --mount type=bind,src=/bin,dst=/data,options=rbind \
	--runtime io.containerd.squeezy.v2 "$image" volume echo hello </dev/null 2>&1) && die "it ran"
[[ $said == *'a volume (bind mount at "/data")'* ]] || die "it said: $said"
until_true 30 nothing_is_left

echo "pods of one size share a server"
detach one sleep 1000
detach two sleep 1000
[ "$(servers)" = 1 ] || die "$(servers) servers instead of 1"
memory=268435456 detach three sleep 1000
[ "$(servers)" = 2 ] || die "$(servers) servers instead of 2"
ctr task metrics one | grep -q 12345678 || die "no metrics"
said=$(ctr task exec --exec-id more one echo 2>&1) && die "it was executed"
[[ $said == *"exec is not supported"* ]] || die "it said: $said"

echo "containerd restarts"
kill -9 "$containerd"
wait "$containerd" 2>/dev/null || true
start_containerd
for task in one two three; do
	has_status "$task" RUNNING || die "$task does not run any more"
done
ctr task kill --signal SIGTERM one
until_true 30 has_status one STOPPED
said=$(ctr task rm one 2>&1)
[[ $said == *"exit code 143"* ]] || die "it said: $said"
ctr container rm one
remove three

echo "the server is killed"
pkill -9 -f 'containerd-shim-squeezy-v2 serve'
is_gone() {
	! has_status two RUNNING
}
# containerd executes `delete`, and has no such task any more.
until_true 30 is_gone
ctr container rm two
[ "$(run again echo again)" = again ] || die "nothing can be started any more"
until_true 30 nothing_is_left

kill "$containerd"
