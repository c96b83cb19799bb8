# Services for pods in VMs, by kube-proxy; to be sourced by kubernetes.sh when five web servers are ready in one VM.
# shellcheck shell=bash
# shellcheck disable=SC2154 # kubernetes.sh has set it

# ask_from_node ADDRESS, ask_from_pod ADDRESS: prints a page that begins with the name of the web server that has answered.
ask_from_node() {
	curl --silent --show-error --fail --max-time 60 "http://$1/environment"
}
ask_from_pod() {
	of "$web" busybox timeout 60 busybox wget -q -O - "http://$1/environment"
}
ask_from_machine() {
	nsenter --target "$machine" --net curl --silent --show-error --fail --max-time 60 "http://$1/environment"
}
# all_answer COMMAND...: asks until each web server has answered. Each time one of them has to; that one of five is left out
# of 200 by chance does not happen.
all_answer() {
	local all left name
	all=$(pods)
	left=$all
	for _ in $(seq 200); do
		name=$("$@" | cut -d' ' -f1) || die_with_events "nobody answers: $*"
		grep -qx "$name" <<<"$all" || die "'$name' answers, which is none of them: $*"
		left=$(grep -vx "$name" <<<"$left") || return 0
	done
	die "these never answer: $left: $*"
}
# follows_pods: whether kube-proxy sends what is for the service to five web servers, those that are there.
follows_pods() {
	local to
	to=$(iptables-save --table nat | sed -n 's/.*"default\/web -> \([0-9.]*\):8080".*/\1/p' | sort)
	[ "$(wc -l <<<"$to")" = 5 ] &&
		[ "$to" = "$(kubectl get pods -l app=web -o jsonpath='{range .items[*]}{.status.podIP}{"\n"}{end}' | sort)" ]
}
# has_watched COUNT EVENT: whether the pod has been told of so many events that begin so.
has_watched() {
	[ "$(grep -c "^$2" "$work/watched")" = "$1" ]
}

mkdir -p "$work/kubectl/bin"
cp "$(command -v kubectl)" "$work/kubectl/bin/kubectl"
name=kubectl make_image "$work/layer" "$work/kubectl"
import_image docker.io/library/kubectl:test
kubectl apply -f "$here/manifests/services.yaml" >/dev/null

echo "a service is answered by all web servers, to the node and to one of them, by itself, too"
until_true 120 follows_pods
service=$(status service web .spec.clusterIP)
all_answer ask_from_node "$service"
all_answer ask_from_pod "$service"

echo "so is a port of the node, to another machine, too"
node_port=$node:$(status service web '.spec.ports[0].nodePort')
# A network namespace beside the node's address, which knows no other address of the cluster.
unshare --net sleep 100000 &
machine=$!
has_own_network() {
	[ "$(readlink "/proc/$machine/ns/net")" != "$(readlink /proc/self/ns/net)" ]
}
until_true 120 has_own_network
ip link add machine type veth peer name eth0 netns "$machine"
ip link set machine master node up
nsenter --target "$machine" --net ip address add "${node%.*}.2/24" dev eth0
nsenter --target "$machine" --net ip link set eth0 up
all_answer ask_from_machine "$node_port"
kill "$machine"
wait "$machine" || true
all_answer ask_from_node "$node_port"
ask_from_pod "$node_port" >/dev/null

echo "a pod asks the API server with its token, and watches"
until_true 120 is operator .status.phase Running
said=$(timeout 120 kubectl exec operator -- kubectl auth whoami -o jsonpath='{.status.userInfo.username}') ||
	die_with_events "it has no answer"
[ "$said" = system:serviceaccount:default:operator ] || die "for the API server it is: $said"
kubectl exec operator -- kubectl get pods -l app=web --watch --output-watch-events \
	-o jsonpath='{.type} {.object.metadata.name}{"\n"}' >"$work/watched" &
watching=$!
until_true 120 has_watched 5 ADDED

echo "a web server that is deleted is asked no more, and the one that comes for it is"
gone=$(pods | grep -vx "$web" | tail -n 1)
kubectl delete pod "$gone" --timeout=120s >/dev/null
until_true 120 has_watched 1 "DELETED $gone"
until_true 120 follows_pods
all_answer ask_from_node "$service"
all_answer ask_from_pod "$service"
kill "$watching"
wait "$watching" || true
kubectl delete -f "$here/manifests/services.yaml" --timeout=120s >/dev/null
until_true 120 has_bound "$vm_group" "$(bound_of 5)"
