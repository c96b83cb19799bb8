# A cluster of one node, for tests; to be sourced after cri-common.sh, with containerd not started yet. All its programs
# see only the namespaces that the test is in.
# shellcheck shell=bash
# shellcheck disable=SC2154 # cri-common.sh has set it

# Nobody's but this cluster's.
node=10.89.0.1
service_addresses=10.96.0.0/16
# The first of these is the API server's.
api_service=10.96.0.1
export KUBECONFIG=$work/kubeconfig
logs=$work/cluster-logs
mkdir -p "$logs" "$work/keys" /var/lib/kubelet

# kubelet sets these for the whole machine. It gets files that look like them instead. `settings` is what the machine has.
declare -A settings
for setting in vm/overcommit_memory=1 vm/panic_on_oom=0 kernel/panic=10 kernel/panic_on_oops=1 \
	kernel/keys/root_maxkeys=1000000 kernel/keys/root_maxbytes=25000000; do
	file=$work/sys/${setting%=*}
	mkdir -p "${file%/*}"
	echo "${setting#*=}" >"$file"
	settings[${setting%=*}]=$(cat "/proc/sys/${setting%=*}")
	mount --bind "$file" "/proc/sys/${setting%=*}"
done

# shellcheck source-path=SCRIPTDIR source=cgroup-common.sh
. "$here/cgroup-common.sh"

# The node's own address, to which nothing is connected.
ip link set lo up
ip link add node type bridge
ip address add "$node/24" dev node
ip link set node up
# Addresses of services are translated, but only of what has a route. Nodes have a default route for that.
ip route add "$service_addresses" dev node

openssl genrsa -out "$work/keys/accounts.key" 2048 2>/dev/null
openssl rsa -in "$work/keys/accounts.key" -pubout -out "$work/keys/accounts.pub" 2>/dev/null
token=$(head -c 16 /dev/urandom | sha256sum | cut -c1-32)
echo "$token,admin,admin,system:masters" >"$work/keys/tokens.csv"
cat >"$KUBECONFIG" <<YAML
apiVersion: v1
kind: Config
clusters: [{name: test, cluster: {server: "https://$node:6443", certificate-authority: $work/keys/apiserver.crt}}]
users: [{name: admin, user: {token: $token}}]
contexts: [{name: test, context: {cluster: test, user: admin}}]
current-context: test
YAML
cat >"$work/kubelet.yaml" <<YAML
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
containerRuntimeEndpoint: unix:///run/containerd/containerd.sock
cgroupDriver: cgroupfs
failSwapOn: false
# Whoever is in the namespaces may ask; that is the test.
authentication: {anonymous: {enabled: true}, webhook: {enabled: false}}
authorization: {mode: AlwaysAllow}
evictionHard: {memory.available: 100Mi}
# Sooner than in other clusters, where a changed volume takes a minute.
syncFrequency: 5s
YAML
# What pods may request together, if it is not all there is.
if [ -n "${node_mib-}" ]; then
	total_mib=$(($(busybox awk '$1 == "MemTotal:" { print $2 }' /proc/meminfo) >> 10))
	echo "systemReserved: {memory: $((total_mib - 100 - node_mib))Mi}" >>"$work/kubelet.yaml"
fi

# start_program NAME ARGUMENT...: in the background, with a log of its own.
start_program() {
	"$@" >>"$logs/$1.log" 2>&1 &
}
start_kubelet() {
	start_program kubelet --config="$work/kubelet.yaml" --kubeconfig="$KUBECONFIG" --node-ip="$node" --hostname-override=node \
		--cert-dir="$work/keys/kubelet" --node-labels=squeezy.dev/runtime=true
	# shellcheck disable=SC2034 # whoever sources this ends it
	kubelet=$!
}
start_cluster() {
	start_program etcd --data-dir "$work/etcd"
	start_program kube-apiserver --etcd-servers=http://127.0.0.1:2379 --advertise-address="$node" --cert-dir="$work/keys" \
		--service-account-issuer=https://kubernetes.default.svc --service-account-key-file="$work/keys/accounts.pub" \
		--service-account-signing-key-file="$work/keys/accounts.key" --authorization-mode=RBAC \
		--token-auth-file="$work/keys/tokens.csv" --allow-privileged --service-cluster-ip-range="$service_addresses" \
		--kubelet-preferred-address-types=InternalIP
	until_true 120 kubectl get --raw /readyz
	start_program kube-scheduler --kubeconfig="$KUBECONFIG" --leader-elect=false --secure-port=0
	start_program kube-controller-manager --kubeconfig="$KUBECONFIG" --leader-elect=false --secure-port=0 \
		--service-account-private-key-file="$work/keys/accounts.key" --root-ca-file="$work/keys/apiserver.crt"
	start_kubelet
	until_true 120 kubectl get serviceaccount default
	until_true 120 kubectl get node node
	# The zeros leave the settings of the kernel's table of connections alone, of which the size is the machine's. What else
	# it sets is the network namespace's own.
	start_program kube-proxy --kubeconfig="$KUBECONFIG" --hostname-override=node --proxy-mode=iptables \
		--cluster-cidr="$pod_addresses" --conntrack-max-per-core=0 --conntrack-tcp-timeout-established=0 \
		--conntrack-tcp-timeout-close-wait=0
	kubectl wait --for=condition=Ready node/node --timeout=120s >/dev/null
	until_true 120 kubectl --server="https://$api_service" get --raw /readyz
}
# stop_cluster: and fails if the machine has other settings than before.
stop_cluster() {
	local program setting
	for program in kubelet kube-proxy kube-scheduler kube-controller-manager kube-apiserver etcd; do
		pkill -x "$(cut -c1-15 <<<"$program")"
	done
	for setting in "${!settings[@]}"; do
		umount "/proc/sys/$setting"
		[ "$(cat "/proc/sys/$setting")" = "${settings[$setting]}" ] ||
			die "$setting of the machine is $(cat "/proc/sys/$setting"), and was ${settings[$setting]}"
	done
}

# die_with_events WORDS: what the cluster knows of its pods comes first.
die_with_events() {
	kubectl get pods --all-namespaces -o wide >&2
	kubectl get events --all-namespaces --sort-by=.lastTimestamp >&2
	die "$*"
}

# apply MANIFEST: as a user does who has put the image into the registry.
apply() {
	sed -e 's,REGISTRY/,docker.io/library/,' -e 's/@VERSION@/test/' "$packaging/$1.yaml" | kubectl apply -f - >/dev/null
}

# status KIND NAME PATH: a part of an object.
status() {
	kubectl get "$1" "$2" -o jsonpath="{$3}"
}
# is POD PATH VALUE: what a part of a pod is.
is() {
	[ "$(status pod "$1" "$2")" = "$3" ]
}
# requested: what the pods of manifests/frozen.yaml request for their containers, in bytes, a line each.
requested() {
	kubectl get pods -l app=frozen -o jsonpath='{range .items[*]}{.spec.containers[0].resources.requests.memory}{"\n"}{end}' |
		sed 's/^128Mi$/134217728/'
}
# all_request TEST BYTES: each of them requests less (-lt) than that, or so much (-eq).
all_request() {
	local all bytes
	all=$(requested) && [ -n "$all" ] || return
	for bytes in $all; do
		test "$bytes" "$1" "$2" || return
	done
}
