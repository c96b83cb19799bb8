#!/usr/bin/env bash
# Runs pods in a VM, in network namespaces as a network plugin makes them, by Debian's containerd unless `containerds` names
# others.
# usage: host/shim/tests/containerd-network.sh SHIM
set -euo pipefail
if [ "${2-}" != inside ]; then
	# shellcheck disable=SC2034 # it is for what is sourced
	more_programs=$("$(dirname "$0")/grpc/build.sh")
fi
# shellcheck source-path=SCRIPTDIR source=containerd-common.sh
. "$(dirname "$0")/containerd-common.sh"

# The node's bridge, and a machine behind it that is no pod, at 10.88.0.100.
mkdir -p /run/netns
ip link set lo up
ip link add node type bridge
ip address add 10.88.0.1/24 dev node
ip link set node up
# make_namespace NAME ADDRESS: with an interface on the bridge, whose other end is `to-NAME`.
make_namespace() {
	ip netns add "$1"
	ip link add "to-$1" type veth peer name eth0 netns "$1"
	ip link set "to-$1" master node up
	ip -n "$1" link set lo up
	ip -n "$1" address add "$2/24" dev eth0
	ip -n "$1" link set eth0 up
	ip -n "$1" route add default via 10.88.0.1
}
make_namespace one 10.88.0.2
make_namespace two 10.88.0.3
make_namespace outside 10.88.0.100
# state NAMESPACE: all that may be changed in it.
state() {
	ip -n "$1" -o link | cut -d: -f2
	ip -n "$1" rule
	ip -n "$1" -4 -o address
	ip -4 -n "$1" route show table all
	# shellcheck disable=SC2016 # it is for the shell there
	ip netns exec "$1" sh -c 'cd /proc/sys/net/ipv4 && cat conf/*/forwarding conf/*/proxy_arp conf/*/rp_filter conf/*/route_localnet neigh/*/proxy_delay'
}
for namespace in one two; do
	state $namespace >"$work/$namespace.before"
done
is_as_before() {
	state "$1" | cmp --silent - "$work/$1.before"
}

# Outside are a name server that knows one name, a web server, and a server of gRPC.
cat >"$work/names.py" <<'PYTHON'
import socket

server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
server.bind(("10.88.0.100", 53))
while True:
    query, client = server.recvfrom(512)
    name_end = query.index(b"\0", 12)
    is_known = query[12:name_end] == b"\7outside\4test" and query[name_end + 1 : name_end + 3] == b"\0\1"
    answer = b"\xc0\x0c\0\1\0\1\0\0\0\1\0\4" + bytes([10, 88, 0, 100]) if is_known else b""
    header = query[:2] + b"\x81\x80\0\1" + (b"\0\1" if is_known else b"\0\0") + b"\0\0\0\0"
    server.sendto(header + query[12 : name_end + 5] + answer, client)
PYTHON
# Sends what there is to read, ends that, and prints what comes until the other end has ended.
cat >"$work/through.py" <<'PYTHON'
import socket
import sys
import threading

stream = socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=300)


def send():
    stream.sendall(sys.stdin.buffer.read())
    stream.shutdown(socket.SHUT_WR)


threading.Thread(target=send).start()
while said := stream.recv(65536):
    sys.stdout.buffer.write(said)
PYTHON
ip netns exec outside python3 "$work/names.py" &
outside=("$!")
mkdir "$work/www"
echo "from outside" >"$work/www/page"
head -c 16777216 /dev/urandom >"$work/www/random"
ip netns exec outside busybox httpd -f -p 10.88.0.100:8000 -h "$work/www" &
outside+=("$!")
ip netns exec outside grpc serve 10.88.0.100:50051 &
outside+=("$!")
echo "nameserver 10.88.0.100" >"$work/resolv.conf"
resolver="--mount type=bind,src=$work/resolv.conf,dst=/etc/resolv.conf,options=rbind:ro"

make_layer
cp "$(command -v grpc)" "$work/layer/bin/grpc"
make_image "$work/layer"
start_containerd
ctr image import "$work/image.tar" >/dev/null

# detach_in NAMESPACE ID COMMAND...: a pod with that network namespace, with more options of ctr in `options`.
detach_in() {
	local namespace=$1
	shift
	# shellcheck disable=SC2086
	ctr run --detach --null-io ${options-} --with-ns "network:/run/netns/$namespace" $resolver --memory-limit 134217728 \
		--runtime io.containerd.squeezy.v2 "$image" "$@" </dev/null
}
# of ID COMMAND...: what a program prints that is added to a container.
of() {
	local id=$1
	shift
	ctr task exec --exec-id "more-$RANDOM$RANDOM" "$id" "$@" </dev/null
}
page() {
	curl --silent --show-error --fail --max-time 60 "http://$1"
}
# page_for ID ADDRESS: what a container gets there within 5 s, or `nothing`. It fails if the container cannot ask.
page_for() {
	of "$1" sh -c "busybox timeout 5 busybox wget -q -O - http://$2/name || echo nothing"
}
prints() {
	[ "$("${@:2}")" = "$1" ]
}
qemus() {
	pgrep -c qemu-system
}

echo "a pod is reached at its address, at every port"
serves='mkdir /www; cat /proc/sys/kernel/hostname >/www/name; busybox httpd -p 80 -h /www; busybox httpd -p 127.0.0.1:9000 -h /www; exec busybox httpd -f -p 8080 -h /www'
detach_in one first sh -c "$serves"
name=$(of first cat /proc/sys/kernel/hostname)
until_true 120 page 10.88.0.2/name
for port in 80 8080; do
	[ "$(page "10.88.0.2:$port/name")" = "$name" ] || die "port $port has said: $(page "10.88.0.2:$port/name")"
	[ "$(ip netns exec outside curl --silent --max-time 60 "http://10.88.0.2:$port/name")" = "$name" ] || die "it is not reached from outside"
done
until_true 120 busybox ping -c 1 -W 10 10.88.0.2
page 10.88.0.2:9000/name 2>/dev/null && die "its loopback interface is reached from elsewhere"
# curl's statuses: 7 if it is refused, 28 if nobody says anything.
status=0
page 10.88.0.2:81/name 2>/dev/null || status=$?
[ "$status" = 7 ] || die "status $status at a port where nobody listens"

echo "its loopback interface is reached from its namespace on the host, as a port is forwarded, and from nowhere else"
# inside NAMESPACE PORT: what is said at 127.0.0.1 to whoever is in it.
inside() {
	ip netns exec "$1" curl --silent --show-error --fail --max-time 60 "http://127.0.0.1:$2/name"
}
for port in 80 9000; do
	[ "$(inside one $port)" = "$name" ] || die "port $port has said: $(inside one $port)"
done
status=0
inside one 81 2>/dev/null || status=$?
[ "$status" = 7 ] || die "status $status at a port where nobody listens"
# One on the same link, which sends its packets for 127.0.0.1 to the pod.
ip -n outside route del local 127.0.0.1 dev lo table local
ip -n outside route add 127.0.0.1 via 10.88.0.2 dev eth0 table local
ip netns exec outside sh -c 'echo 1 >/proc/sys/net/ipv4/conf/eth0/route_localnet'
# send FROM: a datagram for port 9 of 127.0.0.1, where nobody listens.
send() {
	ip netns exec "$1" bash -c 'echo datagram >/dev/udp/127.0.0.1/9'
}
# come: how many such datagrams the pod has had, whether its answers have come to anybody or not.
come() {
	of first cat /proc/net/snmp | busybox awk '$1 == "Udp:" && $3 != "NoPorts" { print $3 }'
}
before=$(come)
send outside
# Behind the other one.
send one
until_true 120 prints $((before + 1)) come
# If its packets came in, none would come back out. The datagram shows that they do come in then.
ip netns exec one sh -c 'echo 1 >/proc/sys/net/ipv4/conf/eth0/route_localnet'
send outside
until_true 120 prints $((before + 2)) come
ip netns exec outside curl --silent --max-time 5 http://127.0.0.1:9000/name >/dev/null &&
	die "its loopback interface is reached from elsewhere"
ip netns exec one sh -c 'echo 0 >/proc/sys/net/ipv4/conf/eth0/route_localnet'

echo "a pod reaches others, by address and by name, from its own address"
[ "$(of first busybox wget -q -O - http://10.88.0.100:8000/page)" = "from outside" ] || die "it reaches nobody"
[[ $(of first busybox nslookup outside.test) == *"Address"*"10.88.0.100"* ]] || die "it does not find: $(of first busybox nslookup outside.test)"
said=$(of first busybox nslookup other.test)
[[ $said == *answer:* && $said != *"Address: "* ]] || die "it finds a name that nobody has: $said"
said=$(of first busybox wget -q -O - http://outside.test:8000/page) || true
[ "$said" = "from outside" ] || die "it reaches nobody by name: $said"
# The pod sends nothing, so its half of the connection may have ended by then.
ip netns exec outside timeout 60 busybox nc -l -p 7000 -e sh -c 'busybox netstat -tn | grep ":7000 "' &
# shellcheck disable=SC2016 # it is for the container's shell
said=$(of first sh -c 'until busybox nc 10.88.0.100 7000; do sleep 0.1; done')
[[ $said == *10.88.0.2:* ]] || die "it is known as: $said"

echo "much goes through, in both directions, and ends where it ends"
sum=$(sha256sum <"$work/www/random")
[ "$(of first sh -c 'busybox wget -q -O - http://10.88.0.100:8000/random | busybox sha256sum')" = "$sum" ] || die "something was lost on its way in"
# The other end of a connection stays open when one has ended.
ctr task exec --detach --exec-id sums first busybox nc -l -p 7000 -e busybox sha256sum </dev/null
# listens PORT
listens() {
	of first busybox netstat -tln | grep -q ":$1 "
}
until_true 120 listens 7000
[ "$(python3 "$work/through.py" 10.88.0.2 7000 <"$work/www/random")" = "$sum" ] || die "something was lost, or nothing came back after the end"
for number in $(seq 100); do
	page 10.88.0.2/name >"$work/many-$number" &
	many+=("$!")
done
wait_for_all "${many[@]}" || die "one of 100 at a time has failed"
[ "$(sort -u "$work"/many-*)" = "$name" ] || die "they were told: $(sort -u "$work"/many-*)"

echo "a WebSocket, and a connection whose one end has ended, stay open with what follows"
# Upgrades, says hello in a frame, and sends back what comes.
# shellcheck disable=SC2016 # it is for the container's shell
upgrades='
	while read -r name value && [ ${#name} -gt 1 ]; do
		[ "$name" != Sec-WebSocket-Key: ] || key=${value%?}
	done
	hash=$(printf %s "${key}258EAFA5-E914-47DA-95CA-C5AB0DC85B11" | busybox sha1sum | busybox sed "s/ .*//; s/../\\\\x&/g")
	accept=$(printf "$hash" | busybox base64)
	printf "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: $accept\r\n\r\n\201\005hello"
	exec cat'
ctr task exec --detach --exec-id upgrades first busybox nc -l -p 7001 -e sh -c "$upgrades" </dev/null
ctr task exec --detach --exec-id ticks first busybox nc -l -p 7002 -e sh -c 'cat; while :; do echo tick; sleep 1; done' </dev/null
until_true 120 listens 7001
until_true 120 listens 7002
cat >"$work/streams.py" <<'PYTHON'
import base64
import hashlib
import os
import socket
import sys

address, end = sys.argv[1:]
stream, half = (socket.create_connection((address, port), timeout=300) for port in (7001, 7002))
half.shutdown(socket.SHUT_WR)
ticks, said = half.makefile("rb"), stream.makefile("rb")
key = base64.b64encode(os.urandom(16))
fields = ["Host: pod", "Upgrade: websocket", "Connection: Upgrade", "Sec-WebSocket-Version: 13"]
fields.append(f"Sec-WebSocket-Key: {key.decode()}")
stream.sendall("\r\n".join(["GET / HTTP/1.1", *fields, "", ""]).encode())
head = [said.readline() for _ in range(5)]
accept = base64.b64encode(hashlib.sha1(key + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11").digest())
assert head[0].startswith(b"HTTP/1.1 101 ") and head[3:] == [b"Sec-WebSocket-Accept: %s\r\n" % accept, b"\r\n"], head
assert said.read(7) == b"\x81\x05hello"
count = 0
while count == 0 or not os.path.exists(end):
    # Binary, masked, of 100 bytes.
    frame = b"\x82" + bytes([0x80 | 100]) + os.urandom(4 + 100)
    stream.sendall(frame)
    assert said.read(len(frame)) == frame
    assert ticks.readline() == b"tick\n"
    count += 1
    print(count, flush=True)
stream.shutdown(socket.SHUT_WR)
assert said.read() == b""
PYTHON
python3 "$work/streams.py" 10.88.0.2 "$work/end" >"$work/streams" &
streams=$!
until_true 120 test -s "$work/streams"

echo "a stream of gRPC stays open with what follows, in both directions"
ctr task exec --detach --exec-id grpc first grpc serve :50051 </dev/null
# First a message that is larger than HTTP/2's windows are then, and a small one every second.
asks() {
	head -c 2097152 "$work/www/random" | base64 --wrap 0
	echo
	until [ -e "$work/end" ]; do
		head -c 100 /dev/urandom | base64 --wrap 0
		echo
		sleep 1
	done
}
asks | tee "$work/asked" | grpc talk 10.88.0.2:50051 >"$work/answered" &
talks=$!
until_true 120 test -s "$work/answered"
[ "$(of first sh -c 'echo hello | busybox timeout 60 grpc talk 10.88.0.100:50051')" = hello ] || die "a pod is no client of gRPC"

echo "pods of a VM reach each other at their addresses only"
detach_in two second sh -c "$serves"
other=$(of second cat /proc/sys/kernel/hostname)
until_true 120 page 10.88.0.3/name
[ "$(qemus)" = 1 ] || die "$(qemus) VMs instead of 1"
[ "$(of second busybox wget -q -O - http://10.88.0.2/name)" = "$name" ] || die "it does not reach the other at its address"
[ "$(of second busybox wget -q -O - http://127.0.0.1:9000/name)" = "$other" ] || die "its loopback interface is another's"
[ "$(inside one 9000) $(inside two 9000)" = "$name $other" ] || die "they said: $(inside one 9000) $(inside two 9000)"
said=$(page_for second 10.88.0.2:9000)
[ "$said" = nothing ] || die "it reaches the other's loopback interface: $said"
of second busybox ip -o link | grep -c : | grep -qx 2 || die "it has: $(of second busybox ip -o link)"
# What the node says about their interfaces holds.
for namespace in one two; do
	bridge link set dev "to-$namespace" isolated on
done
said=$(page_for second 10.88.0.2)
[ "$said" = nothing ] || die "it reaches one that the node keeps from it: $said"
[ "$(page 10.88.0.2/name)" = "$name" ] || die "it is not reached any more"
for namespace in one two; do
	bridge link set dev "to-$namespace" isolated off
done
# Nobody has another's address.
said=$(of second busybox ip address add 10.88.0.2/32 dev net0 2>&1) && die "it takes an address: $said"
[[ $said == *"not permitted"* ]] || die "it said: $said"

echo "who sends to somebody who does not read waits, others do not, and nothing is lost"
# Sends a file to one port of a pod, and prints how many KiB of it are sent. From another port it reads one byte, and
# more, which is the same file, when there is another file. At last it prints what the first port has said.
cat >"$work/waits.py" <<'PYTHON'
import os
import socket
import sys
import threading
import time

address, path, reads = sys.argv[1:]
with open(path, "rb") as file:
    data = file.read()
to_pod, from_pod = (socket.create_connection((address, port), timeout=300) for port in (7003, 7004))
got = bytearray(from_pod.recv(1))


def send():
    for start in range(0, len(data), 65536):
        to_pod.sendall(data[start : start + 65536])
        print(start // 1024 + 64, flush=True)
    to_pod.shutdown(socket.SHUT_WR)


sender = threading.Thread(target=send, daemon=True)
sender.start()
while not os.path.exists(reads):
    time.sleep(0.1)
while said := from_pod.recv(65536):
    got += said
assert got == data, f"{len(got)} bytes have come, of {len(data)}, or others"
sender.join()
print(to_pod.makefile().read(), end="")
PYTHON
of first busybox wget -q -O /tmp/random http://10.88.0.100:8000/random
# shellcheck disable=SC2016 # these are for the container's shells
takes='until [ -e /tmp/reads ]; do sleep 0.2; done; exec busybox sha256sum' gives='
	blocks=0
	while [ $blocks -lt 64 ]; do
		echo $blocks >/tmp/sent
		busybox dd if=/tmp/random bs=256k count=1 skip=$blocks 2>/dev/null
		blocks=$((blocks + 1))
	done'
ctr task exec --detach --exec-id takes first busybox nc -l -p 7003 -e sh -c "$takes" </dev/null
ctr task exec --detach --exec-id gives first busybox nc -l -p 7004 -e sh -c "$gives" </dev/null
until_true 120 listens 7003
until_true 120 listens 7004
python3 "$work/waits.py" 10.88.0.2 "$work/www/random" "$work/reads" >"$work/waits" &
waits=$!
until_true 120 test -s "$work/waits"
# sent: how many KiB have been sent to the pod, and how many blocks of 256 KiB from there.
sent() {
	tail -n 1 "$work/waits"
	of first cat /tmp/sent
}
stands_still() {
	local before
	before=$(sent)
	sleep 1
	[ "$(sent)" = "$before" ]
}
# What has not left who sends is nowhere else. Both kernels' buffers are a few MiB at the most, and the file is 16.
check_waiting() {
	local to_pod blocks
	{
		read -r to_pod
		read -r blocks
	} <<<"$(sent)"
	((to_pod <= 8192 && blocks <= 32)) || die "to who does not read were sent $to_pod KiB, and $((blocks * 256)) KiB from a pod"
	waiting="$to_pod KiB to a pod, and after $((blocks * 256)) KiB from it"
}
until_true 120 stands_still
check_waiting
answered=$(wc -l <"$work/answered")
for _ in $(seq 10); do
	[ "$(page 10.88.0.2/name) $(page 10.88.0.3/name)" = "$name $other" ] || die "they do not answer meanwhile"
done
[ "$(of second busybox wget -q -O - http://outside.test:8000/page)" = "from outside" ] || die "another pod reaches nobody meanwhile"
is_answered() {
	[ "$(wc -l <"$work/answered")" -gt $((answered + 1)) ]
}
until_true 120 is_answered
check_waiting
echo "	waited after $waiting"
of first busybox touch /tmp/reads
touch "$work/reads"
wait "$waits" || die "something that waited was lost on its way out"
[ "$(tail -n 1 "$work/waits")" = "$sum" ] || die "something that waited was lost on its way in"

echo "a pod without a network has a loopback interface"
detach third sh -c "$serves"
until_true 120 prints 1 of third sh -c 'busybox ip -o link | grep -c :'
said=$(page_for third 10.88.0.2)
[ "$said" = nothing ] || die "it reaches: $said"
remove third >/dev/null

echo "containers of a pod share its network, also one after another"
make_namespace three 10.88.0.4
state three >"$work/three.before"
ctr run --detach --null-io --with-ns network:/run/netns/three --annotation io.kubernetes.cri.container-type=sandbox \
	--annotation io.kubernetes.cri.sandbox-id=pod --annotation io.kubernetes.cri.sandbox-memory=134217728 \
	--runtime io.containerd.squeezy.v2 "$image" pod sleep 1 </dev/null
in_pod() {
	# shellcheck disable=SC2086
	ctr run ${options---rm} --annotation io.kubernetes.cri.container-type=container --annotation io.kubernetes.cri.sandbox-id=pod \
		--runtime io.containerd.squeezy.v2 "$image" "$@" </dev/null
}
for round in 1 2; do
	options="--detach --null-io" in_pod "serves-$round" sh -c "$serves"
	until_true 120 page 10.88.0.4/name
	said=$(in_pod "asks-$round" busybox wget -q -O - http://127.0.0.1:9000/name)
	[ "$said" = "$(page 10.88.0.4/name)" ] || die "in round $round it said: $said"
	# A connection that is open then holds up nobody.
	python3 "$work/through.py" 10.88.0.4 80 < <(sleep 5) >/dev/null 2>&1 &
	remove "serves-$round" >/dev/null
done
ctr task kill --signal SIGKILL pod
until_true 120 has_status pod STOPPED
ctr task rm pod 2>/dev/null || true
ctr container rm pod
until_true 120 is_as_before three

echo "a pod that is flooded, and keeps all connections open, holds up nobody else"
cat >"$work/flood.py" <<'PYTHON'
import errno
import socket
import sys

address = sys.argv[1]
held = []
for _ in range(1500):
    stream = socket.socket()
    stream.setblocking(False)
    if stream.connect_ex((address, 80)) not in (0, errno.EINPROGRESS):
        break
    held.append(stream)
datagrams = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
print("flooding", flush=True)
while True:
    try:
        datagrams.sendto(bytes(1000), (address, 9))
    except OSError:
        pass
PYTHON
detach_in three flooded sh -c "$serves"
until_true 120 page 10.88.0.4/name
python3 "$work/flood.py" 10.88.0.4 >"$work/flood" &
flood=$!
until_true 120 grep -q flooding "$work/flood"
for number in $(seq 5); do
	[ "$(page 10.88.0.2/name)" = "$name" ] || die "another pod does not answer"
	[ "$(of second echo "$number")" = "$number" ] || die "nothing can be started in another pod"
done
kill "$flood"
remove flooded >/dev/null
until_true 120 is_as_before three

echo "a silent stream is open while its pod is frozen, and the first message is answered"
# Nothing is started for a tick, which would be computing.
ticks='grpc serve :50051 & busybox mkfifo /tmp/never; exec 3<>/tmp/never; while :; do read -t 0.3 nothing <&3; done'
options="--annotation dev.squeezy/freeze-after=1" detach_in three idle sh -c "$ticks"
# runs_for: how long it runs in a second, which is longer than a tick takes to come; nothing where that is not known.
runs_for() {
	local before after
	before=$(metrics idle cpu.usage_usec)
	sleep 1
	after=$(metrics idle cpu.usage_usec)
	[ -z "$before" ] || [ -z "$after" ] || echo $((after - before))
}
runs() {
	[ "$(runs_for)" -gt 0 ]
}
ctr task exec --detach --exec-id keeps idle sleep 100000 </dev/null
# But for what was added it would be frozen by then, for good. A busy machine keeps it from running for a second or two.
sleep 3
until_true 120 runs
mkfifo "$work/to-idle"
grpc talk 10.88.0.4:50051 <"$work/to-idle" >"$work/from-idle" &
talks_to_idle=$!
exec 4>"$work/to-idle"
ctr task kill --signal SIGKILL --exec-id keeps idle
for message in one two; do
	echo "$message" >&4
	until_true 120 prints "$message" tail -n 1 "$work/from-idle"
	until_true 120 prints 0 runs_for
done
exec 4>&-
wait "$talks_to_idle" || die "a silent stream was lost"
remove idle >/dev/null
until_true 120 is_as_before three

echo "nothing is left of a pod's network"
remove second >/dev/null
until_true 120 is_as_before two
[ "$(page 10.88.0.2/name)" = "$name" ] || die "the other one has lost its network"
# Whoever comes next has the same device, and not what the last one had.
detach_in two third sh -c "$serves"
until_true 120 page 10.88.0.3/name
remove third >/dev/null
until_true 120 is_as_before two
touch "$work/end"
wait "$streams" || die "a stream was lost after $(tail -n 1 "$work/streams") seconds"
wait "$talks" || die "a stream of gRPC was lost after $(wc -l <"$work/answered") messages"
cmp "$work/asked" "$work/answered" || die "a stream of gRPC has lost messages"
echo "	the streams were open for $(tail -n 1 "$work/streams") s"
remove first >/dev/null
until_true 120 is_as_before one
until_true 120 nothing_is_left
said=$(ip -o link)
[[ $said != *squeezy* ]] || die "a tap device is left: $said"

echo "the VM is killed"
detach_in one victim sleep 100000
is_as_before one && die "the pod has no network"
pkill -9 qemu-system
until_true 120 has_status victim STOPPED
ctr task rm victim 2>/dev/null || true
ctr container rm victim
until_true 120 nothing_is_left
is_as_before one || die "the network namespace has changed"

echo "the server is killed"
detach_in one victim sleep 100000
pkill -9 -f 'containerd-shim-squeezy-v2 serve'
until_true 120 is_gone victim
ctr container rm victim
# Nobody could clean up, and the next pod may have the same namespace.
detach_in one next sh -c "$serves"
until_true 120 page 10.88.0.2/name
remove next >/dev/null
until_true 120 nothing_is_left

kill "${outside[@]}" "$containerd"
