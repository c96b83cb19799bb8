#!/usr/bin/env bash
# Drives a shim with containerd and ctr, Debian's unless `containerds` names others.
# usage: host/shim/tests/containerd.sh SHIM
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=containerd-common.sh
. "$(dirname "$0")/containerd-common.sh"

make_layer
make_image "$work/layer"
start_containerd
ctr image import "$work/image.tar" >/dev/null
hear_events

echo "$(containerd --version | cut -d' ' -f3): output, and the exit status"
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
until_true 120 grep -q '/tasks/delete.*"status"' "$work/events"
[ "$(events_of status)" = "/tasks/create /tasks/start /tasks/exit /tasks/delete " ] ||
	die "events: $(events_of status)"

echo "what cannot be is refused with a sentence"
said=$(ctr run --rm --runtime io.containerd.squeezy.v2 "$image" unlimited echo hello </dev/null 2>&1) && die "it ran"
[[ $said == *"the pod has no memory limit"* ]] || die "it said: $said"
said=$(ctr run --rm --memory-limit 134217728 --mount type=bind,src=/bin,dst=/data,options=rbind \
	--runtime io.containerd.squeezy.v2 "$image" volume echo hello </dev/null 2>&1) && die "it ran"
[[ $said == *'a volume of the host that can be written to (/bin at "/data")'* ]] || die "it said: $said"
until_true 120 nothing_is_left

echo "pods of one size share a server"
detach one sleep 1000
detach two sleep 1000
[ "$(servers)" = 1 ] || die "$(servers) servers instead of 1"
memory=268435456 detach three sleep 1000
[ "$(servers)" = 2 ] || die "$(servers) servers instead of 2"
grep -q 12345678 <<<"$(ctr task metrics one)" || die "no metrics: $(ctr task metrics one)"

echo "processes are added, and input is passed on"
said=$(ctr task exec --exec-id more one sh -c 'echo out; echo error >&2; exit 7' </dev/null 2>&1) && die "its status is 0"
[ "$(echo "$said" | grep . | sort | tr '\n' ' ')" = "error out " ] || die "it said: $said"
said=$(head -c 3000000 /dev/zero | ctr task exec --exec-id reads one busybox md5sum)
[ "$said" = "$(head -c 3000000 /dev/zero | md5sum)" ] || die "it said: $said"
said=$(echo through | ctr run --rm --memory-limit 134217728 --runtime io.containerd.squeezy.v2 "$image" reads cat)
[ "$said" = through ] || die "it said: $said"
ctr task exec --detach --exec-id stays one sleep 1000 </dev/null
said=$(ctr task exec --exec-id stays one echo 2>&1 </dev/null) && die "it was executed twice"
[[ $said == *"already"* ]] || die "it said: $said"
# Without a terminal of its own, ctr would not even ask.
said=$(script -qec "ctr task exec --tty --exec-id terminal one echo" /dev/null </dev/null) && die "it has a terminal"
[[ $said == *"these have no terminals"* ]] || die "it said: $said"

echo "containerd restarts"
kill -9 "$containerd"
wait "$containerd" 2>/dev/null || true
start_containerd
for task in one two three; do
	has_status "$task" RUNNING || die "$task does not run any more"
done
ctr task kill --signal SIGTERM one
until_true 120 has_status one STOPPED
said=$(ctr task rm one 2>&1)
[[ $said == *"exit code 143"* ]] || die "it said: $said"
ctr container rm one
remove three

echo "the server is killed"
pkill -9 -f 'containerd-shim-squeezy-v2 serve'
# containerd executes `delete`, and has no such task any more.
until_true 120 is_gone two
ctr container rm two
[ "$(run again echo again)" = again ] || die "nothing can be started any more"
until_true 120 nothing_is_left

kill "$containerd"
