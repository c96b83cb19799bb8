#!/usr/bin/env bash
# Runs containers of Debian's containerd in a VM.
# usage: host/shim/tests/containerd-vm.sh SHIM
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=containerd-common.sh
. "$(dirname "$0")/containerd-common.sh"

log() {
	cat /run/squeezy/shim/*/servers/*.log
}
# log_has COUNT TEXT: whether so many lines of the server's log have it.
log_has() {
	[ "$(log | grep -c "$2")" = "$1" ]
}
no_vm_is_left() {
	nothing_is_left && ! pgrep qemu-system >/dev/null
}

# Above busybox, a layer that hides a file and the content of a directory, and has a file of somebody else's.
make_layer
mkdir -p "$work/layer/old" "$work/upper/bin" "$work/upper/old"
touch "$work/layer/old/hidden" "$work/upper/bin/.wh.yes" "$work/upper/old/.wh..wh..opq" "$work/upper/old/new"
echo "nobody's" >"$work/upper/secret"
chmod 600 "$work/upper/secret"
chown 65534:65534 "$work/upper/secret"
make_image "$work/layer" "$work/upper"
start_containerd
ctr image import "$work/image.tar" >/dev/null
for user in 1234 65534; do
	make_image "$work/layer" "$work/upper"
	ctr image import "$work/image.tar" >/dev/null
done
ctr events >"$work/events" 2>&1 &
until_true 10 [ -e "$work/events" ]

echo "the first pod boots a VM"
detach keeper sleep 100000
[ "$(servers)" = 1 ] || die "$(servers) servers instead of 1"
pgrep qemu-system >/dev/null || die "there is no VM"

echo "output, and the exit status"
for number in 1 2 3; do
	status=0
	run "echo-$number" sh -c 'echo out; echo error >&2; exit 7' >"$work/out" 2>"$work/error" || status=$?
	said="$(cat "$work/out") $(cat "$work/error") $status"
	[ "$said" = "out error 7" ] || die "run $number has said: $said"
done
[ "$(run much busybox sh -c 'busybox yes abcdefg | busybox head -c 8388608' | sha256sum)" = \
	"$(yes abcdefg | head -c 8388608 | sha256sum)" ] || die "output was lost"

echo "the root is that of the image"
said=$(run root sh -c 'busybox ls /bin/yes /old /secret -ln' 2>&1 | busybox awk '{ print $3, $4, $NF }' | tr '\n' ' ') || true
[[ $said == *"65534 65534 /secret"* && $said != *hidden* && $said == *new* ]] || die "it has: $said"
said=$(run hidden sh -c '[ -e /bin/yes ] && echo is there; echo own >/bin/yes && cat /bin/yes')
[ "$said" = own ] || die "it said: $said"
# User 0 has no capabilities yet, so this is for its owner only.
said=$(run closed cat /secret 2>&1) && die "somebody else's file was read: $said"
[[ $said == *"Permission denied"* ]] || die "it said: $said"

said=$(image=${image%:*}:1234 run who sh -c 'busybox id -u; busybox id -g; echo x >/x || echo no' 2>"$work/error" | tr '\n' ' ') || true
[ "$said" = "1234 0 no " ] || die "it said: $said$(cat "$work/error")"
said=$(image=${image%:*}:65534 run owner cat /secret)
[ "$said" = "nobody's" ] || die "it said: $said"
said=$(options=--read-only run read-only sh -c 'echo x >/x || echo no; echo x >/tmp/x && cat /tmp/x' 2>"$work/error" | tr '\n' ' ') || true
[ "$said" = "no x " ] || die "it said: $said$(cat "$work/error")"

echo "many at once"
for number in $(seq 12); do
	run "many-$number" sh -c "echo $number; sleep 1; echo $number >&2" >"$work/many-$number" 2>&1 &
	many+=("$!")
done
wait "${many[@]}" || die "one of them failed"
for number in $(seq 12); do
	[ "$(tr '\n' ' ' <"$work/many-$number")" = "$number $number " ] || die "$number said: $(cat "$work/many-$number")"
done

echo "what cannot be is refused with a sentence"
said=$(run absent no-such-program 2>&1) && die "it ran"
[[ $said == *"executing no-such-program: it is in no directory of PATH"* ]] || die "it said: $said"

echo "memory is the host's when a pod has ended"
# ctr leaves a task that it could not start.
ctr task rm --force absent >/dev/null 2>&1 || true
ctr container rm absent
until_true 30 log_has 23 "the memory of a pod is back"

echo "a full partition is told"
status=0
run full busybox dd if=/dev/zero of=/dev/null bs=200M count=1 >/dev/null 2>&1 || status=$?
[ "$status" = 137 ] || die "status $status instead of 137"
until_true 10 grep -q '/tasks/oom.*"full"' "$work/events"

echo "signals and metrics"
detach told sh -c 'trap "exit 9" TERM; while :; do sleep 0.2; done'
until_true 10 has_status told RUNNING
ctr task metrics told | grep -Eq '^memory.usage +[1-9]' || die "no metrics: $(ctr task metrics told)"
# The trap is set a moment after the start.
sleep 2
ctr task kill --signal SIGTERM told
until_true 30 has_status told STOPPED
said=$(ctr task rm told 2>&1) || true
[[ $said == *"exit code 9"* ]] || die "it said: $said"
ctr container rm told

echo "nothing is left after the last"
[ "$(servers)" = 1 ] || die "$(servers) servers instead of 1"
remove keeper
until_true 30 no_vm_is_left
[ "$(find /var/lib/squeezy/layers/images -type f | wc -l)" = 2 ] || die "there are other images than those of the layers"
[ -z "$(ls /var/lib/squeezy/layers/work)" ] || die "something is left of making images"

echo "the VM is killed"
detach victim sleep 100000
pkill -9 qemu-system
until_true 30 has_status victim STOPPED
said=$(ctr task rm victim 2>&1) || true
[[ $said == *"exit code 255"* ]] || die "it said: $said"
ctr container rm victim
until_true 30 no_vm_is_left

echo "the server is killed"
detach victim sleep 100000
pkill -9 -f 'containerd-shim-squeezy-v2 serve'
is_gone() {
	! has_status victim RUNNING
}
until_true 30 is_gone
ctr container rm victim
# The next server finds no other.
[ "$(run again echo again)" = again ] || die "nothing can be started any more"
until_true 30 no_vm_is_left

kill "$containerd"
