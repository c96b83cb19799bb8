#!/usr/bin/env bash
# Runs containers in a VM, by Debian's containerd unless `containerds` names others.
# usage: host/shim/tests/containerd-vm.sh SHIM
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=containerd-common.sh
. "$(dirname "$0")/containerd-common.sh"

# log_has COUNT TEXT: whether so many lines of the server's log have it.
log_has() {
	local said
	said=$(log) && [ "$(grep -c "$2" <<<"$said")" = "$1" ]
}

# What containerd executes is a file of its own, which can be replaced. A VM is made of what is beside the original.
[ -n "${SQUEEZY_BUILD-}" ] || [[ $shim != */target/* ]] || export SQUEEZY_BUILD=${shim%/target/*}/build
# install_shim: as a package does.
install_shim() {
	cp "$shim" "$work/shim.new"
	mv -f "$work/shim.new" "$work/bin/containerd-shim-squeezy-v2"
}
install_shim

# Above busybox, a layer that hides a file and the content of a directory, and has a file of somebody else's.
make_layer
mkdir -p "$work/layer/old" "$work/upper/bin" "$work/upper/old"
ln -s /proc/1/root "$work/upper/odd"
touch "$work/layer/old/hidden" "$work/upper/bin/.wh.yes" "$work/upper/old/.wh..wh..opq" "$work/upper/old/new"
echo "nobody's" >"$work/upper/secret"
chmod 600 "$work/upper/secret"
chown 65534:65534 "$work/upper/secret"
head -c 33554432 /dev/urandom >"$work/upper/large"
make_image "$work/layer" "$work/upper"
start_containerd
ctr image import "$work/image.tar" >/dev/null
for user in 1234 65534; do
	make_image "$work/layer" "$work/upper"
	ctr image import "$work/image.tar" >/dev/null
done
hear_events

echo "the first pod boots a VM"
detach keeper sleep 100000
[ "$(servers)" = 1 ] || die "$(servers) servers instead of 1"
vmm=$(pgrep qemu-system) || die "there is no VM"

echo "the host ends it in its turn"
# What is promised to it is the limit of its pod, 128 MiB, and 40 MiB of overhead.
total_kib=$(busybox awk '$1 == "MemTotal:" { print $2 }' /proc/meminfo)
adjusted=$(cat "/proc/$vmm/oom_score_adj")
[ "$adjusted" = "$((1000 - 168 * 1024 * 1000 / total_kib))" ] || die "its score has $adjusted added"

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
said=$(run open cat /secret)
[ "$said" = "nobody's" ] || die "it said: $said"
said=$(options='--cap-drop CAP_DAC_OVERRIDE' run closed cat /secret 2>&1) && die "somebody else's file was read: $said"
[[ $said == *"Permission denied"* ]] || die "it said: $said"

said=$(image=${image%:*}:1234 run who sh -c 'busybox id -u; busybox id -g; echo x >/x || echo no' 2>"$work/error" | tr '\n' ' ') || true
[ "$said" = "1234 0 no " ] || die "it said: $said$(cat "$work/error")"
said=$(image=${image%:*}:65534 run owner cat /secret)
[ "$said" = "nobody's" ] || die "it said: $said"
said=$(options=--read-only run read-only sh -c 'echo x >/x || echo no; echo x >/tmp/x && cat /tmp/x' 2>"$work/error" | tr '\n' ' ') || true
[ "$said" = "no x " ] || die "it said: $said$(cat "$work/error")"

echo "what pods read of a layer is in memory once"
# cached: how much of files the VM has in memory, in KiB.
cached() {
	ctr task exec --exec-id look keeper cat /proc/meminfo </dev/null | busybox awk '$1 == "Cached:" { print $2 }'
}
before=$(cached)
run first sh -c 'cat /large >/dev/null'
once=$(cached)
run second sh -c 'cat /large >/dev/null'
twice=$(cached)
[ $((once - before)) -ge $((30 << 10)) ] || die "a file of 32 MiB was read, and the VM has $before and then $once KiB of files"
[ $((twice - once)) -le $((4 << 10)) ] || die "it was read again, and the VM has $once and then $twice KiB of files"

echo "many at once"
for number in $(seq 12); do
	run "many-$number" sh -c "echo $number; sleep 1; echo $number >&2" >"$work/many-$number" 2>&1 &
	many+=("$!")
done
wait_for_all "${many[@]}" || die "one of them failed"
for number in $(seq 12); do
	[ "$(tr '\n' ' ' <"$work/many-$number")" = "$number $number " ] || die "$number said: $(cat "$work/many-$number")"
done

echo "what cannot be is refused with a sentence"
said=$(run absent no-such-program 2>&1) && die "it ran"
[[ $said == *"executing no-such-program: it is in no directory of PATH"* ]] || die "it said: $said"

echo "memory is the host's when a pod has ended"
# That of containerd 1 leaves a task that it could not start.
ctr task rm --force absent >/dev/null 2>&1 || true
ctr container rm absent 2>/dev/null || true
until_true 120 log_has 26 "the memory of a pod is back"

echo "what a pod writes into its root is in its partition"
# in_partition ID: how much of its partition the host has in memory, in MiB, which the shim says as a container's anon.
in_partition() {
	local bytes
	bytes=$(ctr task metrics --format json "$1" | sed -n 's/^ *"anon": \([0-9]*\).*/\1/p')
	echo $((bytes >> 20))
}
detach writes sleep 100000
# What executing takes is there before.
ctr task exec --exec-id first writes busybox dd if=/dev/zero of=/dev/null bs=1M count=1 </dev/null 2>/dev/null
before=$(in_partition writes)
ctr task exec --exec-id second writes busybox dd if=/dev/zero of=/written bs=1M count=40 </dev/null 2>/dev/null
after=$(in_partition writes)
echo "	$((after - before)) MiB more of 40"
# Some of it may have been free memory that the host had not taken, and what is used are huge pages.
[[ $((after - before)) -ge 30 && $((after - before)) -le 50 ]] || die "its partition has $before and then $after MiB"
remove writes >/dev/null

echo "a full partition is told"
status=0
run full busybox dd if=/dev/zero of=/dev/null bs=200M count=1 >/dev/null 2>&1 || status=$?
[ "$status" = 137 ] || die "status $status instead of 137"
until_true 120 grep -q '/tasks/oom.*"full"' "$work/events"

echo "signals and metrics"
detach told sh -c 'trap "exit 9" TERM; echo >/tmp/trapped; while :; do sleep 0.2; done'
until_true 120 has_status told RUNNING
grep -Eq '^memory.usage +[1-9]' <<<"$(ctr task metrics told)" || die "no metrics: $(ctr task metrics told)"
# The trap is set a moment after the start.
is_trapped() {
	ctr task exec --exec-id looks told cat /tmp/trapped </dev/null
}
until_true 120 is_trapped
ctr task kill --signal SIGTERM told
until_true 120 has_status told STOPPED
said=$(ctr task rm told 2>&1) || true
[[ $said == *"exit code 9"* ]] || die "it said: $said"
ctr container rm told

echo "processes are added"
status=0
ctr task exec --exec-id more keeper sh -c 'echo out; echo error >&2; exit 7' </dev/null >"$work/out" 2>"$work/error" || status=$?
said="$(cat "$work/out") $(head -n 1 "$work/error") $status"
[ "$said" = "out error 7" ] || die "it has said: $said"
[ "$(ctr task exec --exec-id more keeper busybox sh -c 'busybox yes abcdefg | busybox head -c 8388608' </dev/null | sha256sum)" = \
	"$(yes abcdefg | head -c 8388608 | sha256sum)" ] || die "output was lost"
detach host sh -c 'echo own >/tmp/file; while :; do sleep 0.2; done'
# Its file is there a moment after the start; process 2 is its first.
said=$(ctr task exec --exec-id more host sh -c 'until cat /tmp/file 2>/dev/null; do sleep 0.1; done; kill -0 2 && echo sees it; busybox id -u' </dev/null | tr '\n' ' ')
[ "$said" = "own sees it 0 " ] || die "it said: $said"
said=$(ctr task exec --exec-id more host no-such-program </dev/null 2>&1) && die "it ran"
[[ $said == *"executing no-such-program: it is in no directory of PATH"* ]] || die "it said: $said"
for number in $(seq 8); do
	ctr task exec --exec-id "more-$number" host sh -c "echo $number; sleep 1; exit $number" </dev/null >"$work/more-$number" &
	more+=("$!")
done
for number in $(seq 8); do
	status=0
	wait "${more[$((number - 1))]}" || status=$?
	[ "$(cat "$work/more-$number") $status" = "$number $number" ] || die "$number said: $(cat "$work/more-$number"), $status"
done
ctr task exec --detach --exec-id stays host sleep 100000 </dev/null
ctr task kill --exec-id stays --signal SIGTERM host
until_true 120 grep -q '/tasks/exit.*"host".*"stays".*143' "$work/events"
has_status host RUNNING || die "it has ended with what was added to it"

echo "input is passed on"
head -c 8388608 /dev/urandom >"$work/random"
[ "$(ctr task exec --exec-id reads host busybox sha256sum <"$work/random")" = "$(sha256sum <"$work/random")" ] || die "input was lost"
said=$(echo through | ctr run --rm --memory-limit 134217728 --runtime io.containerd.squeezy.v2 "$image" through cat)
[ "$said" = through ] || die "it said: $said"

echo "a terminal"
# What runs there waits until it has the size of the terminal that ctr has.
# shellcheck disable=SC2016 # it is for the container's shell
waits='until [ "$(busybox stty size)" = "30 100" ]; do sleep 0.1; done; [ -t 0 ] && [ -t 2 ] && echo resized; exit 9'
status=0
said=$(script -qec "stty cols 100 rows 30; ctr task exec --tty --exec-id terminal host sh -c '$waits'" /dev/null </dev/null | tr -d '\r') || status=$?
# What `script` sends at the end of its own input is echoed.
[[ $said == *resized && $status = 9 ]] || die "it said: $said, $status"
said=$(script -qec "stty cols 100 rows 30; ctr run --rm --tty --memory-limit 134217728 --runtime io.containerd.squeezy.v2 $image terminal sh -c '$waits'" /dev/null </dev/null | tr -d '\r') || true
[[ $said == *resized ]] || die "it said: $said"

echo "a container is paused"
# shellcheck disable=SC2016 # it is for the container's shell
detach counts sh -c 'number=0; while :; do number=$((number + 1)); echo $number >/tmp/number; sleep 0.1; done'
number() {
	ctr task exec --exec-id number counts cat /tmp/number </dev/null
}
until_true 120 number
# What it has started, and what was added to it, as the guest counts processes.
ctr task exec --detach --exec-id stays counts sh -c 'sleep 100000 & exec sleep 100000' </dev/null
listed() {
	said=$(ctr task ps counts) && [ "$(grep -c '^[0-9]' <<<"$said")" -ge "$1" ]
}
until_true 120 listed 3
[ "$(ctr task ps counts | grep -c '"\?stays')" = 1 ] || die "the added process is not named: $said"
# It has 40 MiB of memory; the others have less.
detach holds busybox dd if=/dev/zero of=/dev/null bs=40M count=1000000
holds() {
	[ "$(metrics holds memory.usage)" -gt 40000000 ] && [ "$(metrics holds cpu.usage_usec)" -gt 100000 ]
}
until_true 120 holds
[ "$(metrics counts memory.usage)" -lt 40000000 ] || die "it has the memory of another: $(ctr task metrics counts)"
[[ $(metrics counts pids.current) -ge 3 && $(metrics counts pids.limit) -ge 100 ]] || die "no metrics: $(ctr task metrics counts)"
# The guest's kernel counts by ticks what of its time is the programs' own.
has_computed() {
	[ "$(metrics counts cpu.user_usec)" -gt 0 ]
}
until_true 120 has_computed
remove holds >/dev/null
ctr task pause counts
has_status counts PAUSED || die "it is not paused: $(ctr task ls)"
said=$(ctr task exec --exec-id more counts echo hello </dev/null 2>&1) && die "something was started in it"
[[ $said == *"is paused: resume it first"* ]] || die "it said: $said"
ctr task rm counts >/dev/null 2>&1 && die "it was deleted"
has_status counts PAUSED || die "it is not paused any more: $(ctr task ls)"
said=$(ctr task pause counts 2>&1) && die "it was paused twice"
[[ $said == *"is paused already"* ]] || die "it said: $said"
grep -Eq '^memory.usage +[1-9]' <<<"$(ctr task metrics counts)" || die "no metrics: $(ctr task metrics counts)"
paused=$(metrics counts cpu.usage_usec)
sleep 3
[ "$(metrics counts cpu.usage_usec)" = "$paused" ] || die "it ran while it was paused: $(metrics counts cpu.usage_usec) and before $paused"
ctr task resume counts
has_status counts RUNNING || die "it does not run: $(ctr task ls)"
before=$(number)
goes_on() {
	[ "$(number)" -gt "$before" ]
}
until_true 120 goes_on
ctr task pause counts
remove counts >/dev/null
# The last of them; they come in order.
until_true 120 grep -q '/tasks/delete.*"counts"' "$work/events"
grep -q '/tasks/resumed.*"counts"' "$work/events" || die "events: $(grep counts "$work/events")"
[ "$(grep -c '/tasks/paused.*"counts"' "$work/events")" = 2 ] || die "events: $(grep counts "$work/events")"

echo "free memory of a paused container is the host's"
# In a VM of its own, because its partition is larger.
memory=268435456 detach frees sh -c "$takes_for_a_while"
other=$(pgrep --newest qemu-system)
[ "$other" != "$vmm" ] || die "it is in the same VM"
backend=$(log | grep -Eo ' memory (ram|memfd)[:,].*' | tail -n 1) || die "the log does not say which memory its VM has"
echo "	${backend# }"
until_true 120 has_resident "$other" 200
held=$(resident "$other")
ctr task exec --exec-id tells frees busybox touch /tmp/enough </dev/null
has_freed() {
	ctr task exec --exec-id looks frees busybox test -e /tmp/freed </dev/null
}
until_true 120 has_freed
ctr task pause frees
left=$(resident "$other")
echo "	$((left >> 10)) MiB of $((held >> 10)) MiB are left"
[ $((held - left)) -ge $((150 << 10)) ] || die "the host has $left KiB of its VM in memory, and had $held KiB"
[ "$(metrics frees memory.usage)" -le $(((held << 10) - (150 << 20))) ] || die "it is said to have $(metrics frees memory.usage) bytes"
log_has 0 "has not given back all that is free" || die "the guest says: $(log | grep "all that is free")"
ctr task resume frees
[ "$(ctr task exec --exec-id looks frees cat /tmp/freed </dev/null)" = freed ] || die "it has lost memory"
remove frees >/dev/null
is_alone() {
	[ "$(servers)" = 1 ]
}
until_true 120 is_alone

echo "what was added ends with its container"
status=0
ctr task exec --exec-id waits host sleep 100000 </dev/null >/dev/null 2>&1 &
waits=$!
until_true 120 grep -q '/tasks/exec-started.*"host".*"waits"' "$work/events"
remove host >/dev/null
wait "$waits" || status=$?
[ "$status" = 137 ] || die "status $status instead of 137"

echo "several containers of a pod"
# in_pod ID COMMAND...: a container of the pod `pod`, which kubelet would call 7d0c3b4e, with more options of ctr in
# `options`.
in_pod() {
	# shellcheck disable=SC2086
	ctr run ${options---rm} ${mounts-} --annotation io.kubernetes.cri.container-type=container \
		--annotation io.kubernetes.cri.sandbox-id=pod --annotation io.kubernetes.cri.sandbox-uid=7d0c3b4e \
		--runtime io.containerd.squeezy.v2 "$image" "$@" </dev/null
}
ctr run --detach --null-io --annotation io.kubernetes.cri.container-type=sandbox --annotation io.kubernetes.cri.sandbox-id=pod \
	--annotation io.kubernetes.cri.sandbox-memory=134217728 --runtime io.containerd.squeezy.v2 "$image" pod sleep 1 </dev/null
[ "$(servers)" = 1 ] || die "$(servers) servers instead of 1"
before=$(log | reclaims)
options="--detach --null-io" in_pod serves sh -c 'mkdir /www; echo hello >/www/hello; exec busybox httpd -f -p 8080 -h /www'
status=0
said=$(in_pod asks sh -c 'until busybox wget -q -O - http://127.0.0.1:8080/hello 2>/dev/null; do sleep 0.2; done; [ -e /www ] || echo other files; exit 5' | tr '\n' ' ') || status=$?
[ "$said$status" = "hello other files 5" ] || die "it said: $said, $status"
options="--detach --null-io" in_pod stays sleep 100000
grep -Eq '^memory.usage +[1-9]' <<<"$(ctr task metrics stays)" || die "no metrics: $(ctr task metrics stays)"
status=0
in_pod fills busybox dd if=/dev/zero of=/dev/null bs=200M count=1 >/dev/null 2>&1 || status=$?
[ "$status" = 137 ] || die "status $status instead of 137"
until_true 120 grep -q '/tasks/oom.*"fills"' "$work/events"
# One that has more than its own limit ends alone, long before the partition is full.
status=0
options="--rm --memory-limit 33554432 --cpus 0.5" in_pod small busybox dd if=/dev/zero of=/dev/null bs=48M count=2000 >/dev/null 2>&1 || status=$?
[ "$status" = 137 ] || die "status $status instead of 137"
until_true 120 grep -q '/tasks/oom.*"small"' "$work/events"
has_status stays RUNNING || die "it has ended with another one"
[ "$(metrics stays memory.usage_limit)" = 134217728 ] || die "no limit: $(ctr task metrics stays)"
[ "$(ctr task exec --exec-id more stays cat /proc/sys/kernel/hostname </dev/null)" = \
	"$(ctr task exec --exec-id more serves cat /proc/sys/kernel/hostname </dev/null)" ] || die "they have other names"
# Others start beside one that is paused.
for task in serves stays; do
	ctr task pause "$task"
done
[ "$(in_pod wakes echo awake)" = awake ] || die "nothing can be started beside those that are paused"
ctr task resume stays
# The one that began it ends, and another comes.
remove serves >/dev/null
has_status stays RUNNING || die "it has ended with another one"
[ "$(in_pod comes echo hello)" = hello ] || die "nothing can be started any more"
[ "$(log | reclaims)" = "$before" ] || die "the memory of a pod that runs is back"
remove stays >/dev/null
until_true 120 log_has $((before + 1)) "the memory of a pod is back"
# It is there again for whoever comes then.
[ "$(in_pod again echo again)" = again ] || die "nothing can be started any more"
until_true 120 log_has $((before + 2)) "the memory of a pod is back"

echo "volumes"
# As kubelet and containerd make them for a pod.
kubelet=$work/kubelet/pods/7d0c3b4e
config=$kubelet/volumes/kubernetes.io~configmap/config
cache=$kubelet/volumes/kubernetes.io~empty-dir/cache
shm=$work/sandboxes/pod/shm
mkdir -p "$config" "$cache" "$kubelet/containers/main" "$shm"
chmod 777 "$cache"
chmod 1777 "$shm"
# config_map VERSION TEXT: changes the files as kubelet does.
config_map() {
	mkdir "$config/..$1"
	echo "$2" >"$config/..$1/key"
	ln -s "..$1" "$config/..new"
	mv -T "$config/..new" "$config/..data"
	ln -sfn ..data/key "$config/key"
}
config_map 1 one
ln -s /etc/passwd "$config/out"
echo "10.1.2.3 somebody" >"$kubelet/etc-hosts"
touch "$kubelet/containers/main/0a1b"
bind() {
	echo "--mount type=bind,src=$1,dst=$2,options=rbind:$3"
}
all="$(bind "$config" /config ro) $(bind "$cache" /cache rw) $(bind "$config" /cache/config ro) $(bind "$kubelet/etc-hosts" /etc/hosts rw) $(bind "$shm" /dev/shm rw) $(bind "$kubelet/containers/main/0a1b" /dev/termination-log rw)"
mounts=$all options="--detach --null-io" in_pod shares sh -c 'echo memory >/dev/shm/file; echo shared >/cache/file; sleep 100000'
# shellcheck disable=SC2016 # it is for the container's shell
said=$(mounts=$all in_pod looks sh -c '
	until [ -s /cache/file ]; do sleep 0.1; done
	cat /cache/file /dev/shm/file /config/key /cache/config/key /etc/hosts; cat /config/out; echo x >/config/new || echo read-only; echo x >>/etc/hosts && echo writable
	echo "it is done" >/dev/termination-log; busybox ls -ln / /config/..data/ | busybox awk "/ (cache|key)$/ { print \$1, \$3, \$4 }"' 2>"$work/error" |
	tr '\n' ' ') || true
[ "$said" = "shared memory one one 10.1.2.3 somebody read-only writable drwxrwxrwx 0 0 -rw-r--r-- 0 0 " ] || die "it said: $said$(cat "$work/error")"
[ "$(cat "$kubelet/containers/main/0a1b")" = "it is done" ] || die "the report is not written back"
[ "$(cat "$kubelet/etc-hosts")" = "10.1.2.3 somebody" ] || die "the host's file was written"
[ -z "$(find "$cache" "$shm" -type f)" ] || die "something is on the host: $(find "$cache" "$shm")"
config_map 2 two
rm -r "$config/..1"
of_shares() {
	ctr task exec --exec-id asks shares "$@" </dev/null
}
# It may have been read in the middle of the change, and is again.
has_changed() {
	[ "$(of_shares cat /config/key) $(of_shares busybox ls -A /config | tr '\n' ' ')" = "two ..2 ..data key out " ]
}
until_true 120 has_changed
# All containers of the pod that have a directory have one copy, for which there is room.
mkdir "$work/wide"
head -c 900000 /dev/urandom >"$work/wide/file"
for number in 1 2 3; do
	mounts=$(bind "$work/wide" /wide ro) options="--detach --null-io" in_pod "wide-$number" sleep 100000
done
remove wide-1 >/dev/null
[ "$(ctr task exec --exec-id asks wide-3 busybox md5sum /wide/file </dev/null | cut -d ' ' -f 1)" = "$(md5sum "$work/wide/file" | cut -d ' ' -f 1)" ] ||
	die "another one has left, and the copy is not what it was"
remove wide-2 >/dev/null
remove wide-3 >/dev/null
# Parts of what the pod shares, and of something else, as kubelet mounts them.
parts=$kubelet/volume-subpaths
fast=$kubelet/volumes/kubernetes.io~empty-dir/fast
mkdir "$fast"
mount -t tmpfs -o size=4m tmpfs "$fast"
# part VOLUME NUMBER DIRECTORY: the directory, made if it is not there, as a part for the container main.
part() {
	mkdir -p "$parts/$1/main/$2" "$3"
	mount --bind "$3" "$parts/$1/main/$2"
}
part cache 0 "$cache/logs/to day"
part cache 1 "$cache/settings"
part cache 2 "$cache/out"
part fast 3 "$fast/a/b"
part config 4 "$config/..2"
part claim 5 "$work/claim"
of_shares sh -c 'echo on >/cache/settings; busybox ln -s /etc /cache/out' 2>"$work/error" || die "$(cat "$work/error")"
some="$(bind "$parts/cache/main/1" /etc/settings ro) $(bind "$parts/fast/main/3" /fast rw) $(bind "$parts/config/main/4" /some-config ro)"
said=$(mounts="$some $(bind "$parts/cache/main/0" /logs rw)" in_pod writes sh -c \
	'echo today >/logs/file; echo fast >/fast/file; cat /etc/settings /some-config/key; echo off >/etc/settings || echo read-only' 2>"$work/error" |
	tr '\n' ' ') || true
[ "$said" = "on two read-only " ] || die "it said: $said$(cat "$work/error")"
[ "$(of_shares cat "/cache/logs/to day/file")" = today ] || die "a part is none of the directory"
[ "$(mounts="$all $(bind "$fast" /fast ro)" in_pod reads cat /fast/a/b/file)" = fast ] || die "a part is none of the directory in memory"
[ -z "$(find "$cache" "$fast" -type f)" ] || die "something is on the host: $(find "$cache" "$fast")"
# One in memory has its own limit, and who reaches that goes on.
said=$(mounts=$(bind "$fast" /fast rw) in_pod spills sh -c \
	'busybox dd if=/dev/zero of=/fast/big bs=1M count=5 2>&1; busybox du -m /fast/big | busybox cut -f 1; busybox rm /fast/big')
[[ $said == *"No space left"*$'\n'4 ]] || die "it said: $said"
has_status shares RUNNING || die "it has ended with another one"
# What is refused, by name, and does not leave anything.
mkdir "$work/rw" "$work/large" "$work/owned"
chown 70000 "$work/owned"
head -c 2097152 /dev/zero >"$work/large/file"
mkfifo "$work/rw/fifo"
for refused in "$(bind "$work/rw" /data rw)|can be written to" "$(bind "$work/rw" /data ro)|neither a file nor" \
	"$(bind "$work/large" /data ro)|more than 1 MiB" "$(bind "$work/owned" /data ro)|above 65535, 70000," \
	"$(bind "$config" /proc/x ro)|volume at /proc/x" \
	"$(bind "$config" /proc/self/root/x ro)|volume at" "$(bind "$config" /odd/x ro)|volume at" \
	"$(bind "$parts/cache/main/2" /data rw)|out in it is a link" "$(bind "$parts/claim/main/5" /data rw)|can be written to" \
	"$(bind "${kubelet%/*}/other/volumes/kubernetes.io~empty-dir/cache" /data rw)|can be written to"; do
	said=$(mounts=${refused%|*} in_pod refused echo hello 2>&1) && die "it ran with ${refused%|*}: $said"
	[[ $said == *"${refused#*|}"* ]] || die "it said: $said"
	ctr task rm --force refused >/dev/null 2>&1 || true
	ctr container rm refused >/dev/null 2>&1 || true
done
# A directory of the pod that is full is full, and does not take more than the pod has.
said=$(of_shares sh -c 'busybox dd if=/dev/zero of=/cache/big bs=1M count=200 2>&1; busybox du -m /cache/big | busybox cut -f 1; busybox rm /cache/big')
[[ $said == *"No space left"*64 ]] || die "it said: $said"
# What a pod has for itself is there until the pod is gone, also when no container is.
before=$(log | reclaims)
of_shares busybox dd if=/dev/zero of=/cache/kept bs=1M count=24 2>/dev/null
remove shares >/dev/null
[ "$(metrics pod memory.usage)" -ge 25165824 ] || die "what a pod without containers has is nobody's: $(ctr task metrics pod)"
[ "$(mounts=$all in_pod anew sh -c 'cat /cache/file /dev/shm/file; busybox rm /cache/kept' | tr '\n' ' ')" = "shared memory " ] || die "what was there before is lost"
[ "$(log | reclaims)" = "$before" ] || die "the memory of a pod that is there is back"
# But what is free beside it is the host's a little after its last container has ended. Where the host takes what is free
# every few seconds, that may have come first.
given_back() {
	log | grep -c "the free memory of a pod is back" || true
}
freed() {
	log | sed -n 's/.*the free memory of a pod is back.* bytes=\([0-9]*\).*/\1/p' | tail -n 1
}
gives_back_much() {
	local known end
	known=$(given_back)
	mounts=$all in_pod takes busybox dd if=/dev/zero of=/dev/null bs=64M count=1
	end=$((SECONDS + 30))
	until [ "$(given_back)" -gt "$known" ]; do
		[ $SECONDS -lt $end ] || return 1
		sleep 0.05
	done
	[ "$(freed)" -ge $((50 << 20)) ]
}
until_true 120 gives_back_much
# In which another container could have come. `squeezy bench pods` reads that, and the same of the pod that is deleted.
empty() {
	log | sed -n "s/.*$1 memory of a pod is back empty_us=\([0-9]*\) .*/\1/p" | tail -n 1
}
# Where the host takes what is free by itself, it has not waited.
case $backend in
" memory ram"*) [ "$(empty "the free")" -ge 2000000 ] || die "it had no container for $(empty "the free") us" ;;
esac
mounts=$all options="--detach --null-io" in_pod last sleep 100000
# One whose files fill its partition ends itself at most, and gives back all.
# shellcheck disable=SC2016 # it is for the container's shell
mounts=$all in_pod floods sh -c 'for file in /cache/big /dev/shm/big /big; do busybox dd if=/dev/zero of=$file bs=1M count=64; done' >/dev/null 2>&1 || true
[ "$(ctr task exec --exec-id asks keeper echo hello </dev/null)" = hello ] || die "another pod has ended"
ctr task kill --signal SIGKILL pod
until_true 120 has_status last STOPPED
for task in last pod; do
	ctr task rm "$task" 2>/dev/null || true
	ctr container rm "$task"
done
until_true 120 log_has $((before + 1)) "the memory of a pod is back"
[ -n "$(empty the)" ] || die "how long the pod had no container is not said"

echo "the program is replaced"
# Not one that the server has just started and that is still a copy of it.
server=$(pgrep --oldest -f 'containerd-shim-squeezy-v2 serve')
install_shim
[[ $(readlink "/proc/$server/exe") == *" (deleted)" ]] || die "the server runs what is there now"
detach upgraded sleep 100000
[ "$(servers) $(pgrep qemu-system)" = "1 $vmm" ] || die "the pod is in another VM"
for task in keeper upgraded; do
	[ "$(ctr task exec --exec-id more "$task" echo hello </dev/null)" = hello ] || die "nothing can be started in $task"
done
[ "$(run beside echo hello)" = hello ] || die "nothing can be started any more"
remove upgraded >/dev/null

echo "nothing is left after the last"
[ "$(servers)" = 1 ] || die "$(servers) servers instead of 1"
remove keeper
until_true 120 no_vm_is_left
# Fewer, where the disk is short.
images=$(find /var/lib/squeezy-shim/layers/images -type f | wc -l)
[ "$images" -le 2 ] || die "there are $images images, and two layers"
left=$(ls /var/lib/squeezy-shim/layers/work)
[ -z "$left" ] || die "something is left of making images: $left"

echo "the VM is killed"
detach victim sleep 100000
pkill -9 qemu-system
until_true 120 has_status victim STOPPED
said=$(ctr task rm victim 2>&1) || true
[[ $said == *"exit code 255"* ]] || die "it said: $said"
ctr container rm victim
until_true 120 no_vm_is_left

echo "the VM hangs"
detach victim sleep 100000
pkill -STOP qemu-system
until_true 120 has_status victim STOPPED
ctr task rm victim >/dev/null 2>&1 || true
ctr container rm victim
until_true 120 no_vm_is_left

echo "the server is killed"
detach victim sleep 100000
pkill -9 -f 'containerd-shim-squeezy-v2 serve'
until_true 120 is_gone victim
ctr container rm victim

echo "the server hangs"
detach victim sleep 100000
pkill -STOP -f 'containerd-shim-squeezy-v2 serve'
[ "$(run beside echo beside)" = beside ] || die "a pod was sent to a server that hangs"
# containerd gives up on it when it looks for its tasks.
kill "$containerd"
wait "$containerd" || true
start_containerd
no_process_is_left() {
	! pgrep -f 'containerd-shim-squeezy-v2 serve|squeezy-pod|^qemu-system' >/dev/null
}
until_true 120 no_process_is_left
until_true 120 is_gone victim
ctr container rm victim
# The next server finds no other.
[ "$(run again echo again)" = again ] || die "nothing can be started any more"
until_true 120 no_vm_is_left

kill "$containerd"
