#!/usr/bin/env bash
# Runs pods of a Kubernetes cluster of one node in a VM, as docs/kubernetes.md says how to install it: with Debian's
# containerd, or with a newer one.
# usage: [rounds=10] [most=5] [seed=NUMBER] host/shim/tests/kubernetes.sh SHIM
# kubelet is killed `rounds` times, while there are 1 to `most` pods; when, and how many, is drawn with `seed`.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
if [ "${2-}" != inside ]; then
	if [ -z "${in_own_cgroups-}" ]; then
		in_own_cgroups=yes exec "$here/own-cgroups.sh" "$0" "$@"
	fi
	more_programs=$("$here/cluster/build.sh")
	more_programs+=:$("$here/get-etcd.sh"):$("$here/knative/build.sh")
	# shellcheck disable=SC2034 # it is for what is sourced
	containerds=$("$here/containerds.sh" newest debian)
fi
# shellcheck source-path=SCRIPTDIR source=cri-common.sh
. "$here/cri-common.sh"
# It can be filled.
# shellcheck disable=SC2034 # it is for what is sourced
node_mib=2048
# shellcheck source-path=SCRIPTDIR source=cluster-common.sh
. "$here/cluster-common.sh"

# pods: the names of the web servers that are there.
pods() {
	kubectl get pods -l app=web -o jsonpath='{range .items[*]}{.metadata.name}{"\n"}{end}'
}
page() {
	curl --silent --show-error --fail --max-time 60 "http://$(status pod "$1" .status.podIP):8080/$2"
}
says() {
	[ "$(page "$1" "$2")" = "$3" ]
}
is_ready() {
	is "$1" '.status.conditions[?(@.type=="Ready")].status' "$2"
}
of() {
	local name=$1
	shift
	kubectl exec "$name" -c server -- "$@"
}
has_pods() {
	local names
	names=$(pods) && [ "$(grep -c . <<<"$names")" = "$1" ]
}
# least_plugged: how much memory the VM's pods had at the least, in bytes, once more than `before` of them had given back
# theirs. Several do at a time, so the last line may not be that.
least_plugged() {
	log | each_plugged | tail -n +$((before + 1)) | sort -n | head -n 1
}
since() {
	python3 -c "import sys; print(f'{float(sys.argv[2]) - float(sys.argv[1]):.1f} s')" "$1" "$EPOCHREALTIME"
}

make_layer
for command in awk chmod dd httpd wget tar rm touch ln mkdir ls kill test; do
	ln -s busybox "$work/layer/bin/$command"
done
make_image "$work/layer"
start_with_image
begin=$EPOCHREALTIME
start_cluster
echo "$(containerd --version | cut -d' ' -f3), $(kubelet --version): the node is ready after $(since "$begin")"
kubectl apply -f "$packaging/runtimeclass.yaml" >/dev/null

echo "a web server is ready and answers"
begin=$EPOCHREALTIME
kubectl apply -f "$here/manifests/web.yaml" >/dev/null
kubectl rollout status deployment web --timeout=180s >/dev/null || die_with_events "it is not ready"
echo "	the first after $(since "$begin")"
[ "$(pgrep -c qemu-system)" = 1 ] || die "it is in no VM"
web=$(pods)
address=$(status pod "$web" .status.podIP)
said=$(page "$web" environment)
[ "$said" = "$web $address default 67108864 hello opensesame" ] || die "its environment: $said"
[ "$(page "$web" settings/page)" = first ] || die "config map: $(page "$web" settings/page)"
[ "$(page "$web" password/password)" = opensesame ] || die "secret: $(page "$web" password/password)"
[[ $(page "$web" labels/labels) == *'tier="front"'* ]] || die "downward API: $(page "$web" labels/labels)"
[ "$(page "$web" cache/state)" = prepared ] || die "empty directory: $(page "$web" cache/state)"
[ "$(page "$web" pages/page)" = part ] || die "part of an empty directory: $(page "$web" pages/page)"
[ "$(page "$web" file)" = one ] || die "file of an empty directory: $(page "$web" file)"
until_true 120 page "$web" cache/helped
[ "$(page "$web" account/namespace)" = default ] || die "service account: $(page "$web" account/namespace)"
# What the token says is true, says who has signed it.
said=$(curl --silent --max-time 60 --cacert "$work/keys/apiserver.crt" -H "Authorization: Bearer $(page "$web" account/token)" \
	-H 'Content-Type: application/json' "https://$node:6443/apis/authentication.k8s.io/v1/selfsubjectreviews" \
	-d '{"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}')
[[ $said == *system:serviceaccount:default:default* ]] || die "the token is of: $said"
[ "$(status pod "$web" .spec.overhead.memory)" = 40Mi ] || die "the pod has no overhead"

echo "its VM has a control group beside those of the pods, with their part of the processors"
vm_group=$(vm_groups)
[ -n "$vm_group" ] || die "it has none: $(log | grep 'control group')"
is_in "$vm_group" "$(pgrep qemu-system)" || die "QEMU is not in it"
# 120 thousandths of a processor.
has_shares "$vm_group" 512 || die "it has $(cat "$vm_group/cpu.shares") shares"
is_in "$pods_memory_group/${vm_group##*/}" "$(pgrep qemu-system)" || die "QEMU's memory is not bounded"
# is_bounded: whether all pods together may have what may be requested and the 100 MiB before which kubelet evicts.
is_bounded() {
	local allocatable
	allocatable=$(status node node .status.allocatable.memory | numfmt --from=iec-i)
	[ "$(cat "$pods_memory_group/memory.limit_in_bytes")" = $((allocatable + (100 << 20))) ]
}
until_true 120 is_bounded
bound_of_one=$(bound "$vm_group")
# bound_of COUNT: that with so many pods, each of which has 128 MiB.
bound_of() {
	echo $((bound_of_one + ($1 - 1) * (128 << 20)))
}

echo "kubectl logs, exec, cp, attach and port-forward"
[ "$(kubectl logs "$web" -c server)" = "$web serves" ] || die "logs: $(kubectl logs "$web" -c server)"
[ "$(echo through | kubectl exec -i "$web" -c server -- cat)" = through ] || die "exec lost its input"
status=0
of "$web" sh -c 'exit 7' 2>/dev/null || status=$?
[ "$status" = 7 ] || die "exec has ended with $status"
head -c 1048576 /dev/urandom >"$work/random"
kubectl cp "$work/random" "$web:/tmp/random" -c server
kubectl cp "$web:/tmp/random" "$work/copy" -c server >/dev/null
cmp "$work/random" "$work/copy" || die "cp has changed a file"
# containerd sends no output any more when input has ended.
mkfifo "$work/to-helper"
timeout 300 kubectl attach -i --quiet "$web" -c helper <"$work/to-helper" >"$work/from-helper" &
attach=$!
exec 4>"$work/to-helper"
echo attached >&4
until_true 120 grep -q attached "$work/from-helper"
exec 4>&-
kill "$attach" 2>/dev/null || true
wait "$attach" 2>/dev/null || true
until_forwarded 120 ready yes kubectl port-forward "$web" 18080:8080

echo "probes"
of "$web" rm /www/ready
until_true 120 is_ready "$web" False
of "$web" sh -c 'echo yes >/www/ready'
until_true 120 is_ready "$web" True
restarts='.status.containerStatuses[?(@.name=="server")].restartCount'
is "$web" "$restarts" 0 || die "it was restarted"
of "$web" rm /tmp/alive
until_true 120 is "$web" "$restarts" 1
until_true 120 is_ready "$web" True
is "$web" '.status.containerStatuses[?(@.name=="helper")].restartCount' 0 || die "the other one was restarted, too"

echo "a changed config map, secret and label arrive"
begin=$EPOCHREALTIME
kubectl patch configmap settings -p '{"data": {"page": "second"}}' >/dev/null
kubectl patch secret password -p '{"stringData": {"password": "closesesame"}}' >/dev/null
kubectl label pod "$web" --overwrite tier=back >/dev/null
until_true 120 says "$web" settings/page second
until_true 120 says "$web" password/password closesesame
has_label() {
	[[ $(page "$web" labels/labels) == *'tier="back"'* ]]
}
until_true 120 has_label
echo "	after $(since "$begin")"

echo "a pod that needs too much, one that crashes, one without a limit"
kubectl apply -f "$here/manifests/ends.yaml" >/dev/null
ended='.status.containerStatuses[0].state.terminated'
until_true 120 is full "$ended.reason" OOMKilled
is full "$ended.exitCode" 137 || die "it has ended with $(status pod full "$ended.exitCode")"
until_true 120 is crashes '.status.containerStatuses[0].restartCount' 1
before='.status.containerStatuses[0].lastState.terminated'
until_true 120 is crashes "$before.exitCode" 3
[[ $(status pod crashes "$before.message") == "it is broken"* ]] || die "it said: $(status pod crashes "$before.message")"
has_run_again() {
	[ "$(kubectl logs crashes)" = "run second" ]
}
until_true 120 has_run_again
is_refused() {
	[[ $(kubectl get events --field-selector involvedObject.name=unlimited) == *"set resources.limits.memory of each container"* ]]
}
until_true 120 is_refused
kubectl delete -f "$here/manifests/ends.yaml" --timeout=120s >/dev/null
is "$web" "$restarts" 1 || die "the web server has ended with another pod"
# What its VM has without them.
alone=$(log | plugged)
[ "${alone:-0}" -gt 0 ] || die "the server does not say how much memory its pods have"

# metric POD NAME: what containerd is told of the pod's container.
metric() {
	local id
	id=$(status pod "$1" '.status.containerStatuses[0].containerID')
	ctr --namespace k8s.io task metrics "${id#containerd://}" >"$work/metrics"
	busybox awk -v name="$2" '$1 == name { print $2 }' "$work/metrics"
}

echo "a memory limit is raised through the API server"
kubectl apply -f "$here/manifests/grows.yaml" >/dev/null
until_true 120 is grows .status.phase Running
# resize MEMORY: asks for another limit, and as much as the request.
resize() {
	kubectl patch pod grows --subresource resize --patch \
		"{\"spec\": {\"containers\": [{\"name\": \"main\", \"resources\": {\"requests\": {\"memory\": \"$1\"}, \"limits\": {\"memory\": \"$1\"}}}]}}" >/dev/null
}
# has_limit MIB: whether its processes are held to that.
has_limit() {
	[ "$(metric grows memory.usage_limit)" = $(($1 << 20)) ]
}
until_true 120 has_limit 96
until_true 120 has_bound "$vm_group" "$(bound_of 2)"
resize 120Mi
until_true 120 has_limit 120
until_true 120 is grows '.status.containerStatuses[0].resources.limits.memory' 120Mi
[ "$(kubectl exec grows -- cat /sys/fs/cgroup/memory.max)" = $((120 << 20)) ] || die "it reads another limit"
# More than before, and for longer than it takes to see that.
kubectl exec grows -- dd if=/dev/zero of=/dev/null bs=100M count=20 2>/dev/null || die "it has less than its new limit"
resize 200Mi
is_told() {
	[[ $(status pod grows '.status.conditions[?(@.type=="PodResizeInProgress")].message') == *"more than the pod's partition of 128 MiB"* ]]
}
until_true 120 is_told
resize 1Ti
until_true 120 is grows '.status.conditions[?(@.type=="PodResizePending")].reason' Infeasible
has_limit 120 || die "it has $(metric grows memory.usage_limit) bytes after what was refused"
is grows '.status.containerStatuses[0].restartCount' 0 || die "it was restarted"
before=$(log | reclaims)
kubectl delete pod grows >/dev/null
its_memory_is_back() {
	[ "$(log | reclaims)" -gt "$before" ]
}
until_true 120 its_memory_is_back
until_true 120 has_bound "$vm_group" "$bound_of_one"

echo "kubelet's statistics"
vmm=$(pgrep qemu-system)
before=$(resident "$vmm")
kubectl apply -f "$here/manifests/holds.yaml" >/dev/null
is_full() {
	[ "$(kubectl logs holds)" = ready ]
}
until_true 120 is_full
# measured: what kubelet says of the container, what the shim says of it, and how much more of the partitions is in memory
# than before it, if all of that is the same within 5%, and no less than what the container holds.
# kubelet looks at it from time to time.
measured() {
	kubectl get --raw /api/v1/nodes/node/proxy/stats/summary >"$work/summary"
	python3 - "$work/summary" "$(metric holds memory.usage)" $((($(resident "$vmm") - before) << 10)) <<'PYTHON'
import json, sys

with open(sys.argv[1]) as file:
    [pod] = [pod for pod in json.load(file)["pods"] if pod["podRef"]["name"] == "holds"]
[container] = pod["containers"]
said, counted, grown = container["memory"]["workingSetBytes"], *map(int, sys.argv[2:])
print(", ".join(f"{name} {count / 2**20:.1f} MiB" for name, count in [("kubelet", said), ("shim", counted), ("host", grown)]))
is_held = min(said, counted, grown) >= 112 << 20
sys.exit(not (is_held and abs(said - counted) <= 0.05 * counted and abs(said - grown) <= 0.05 * grown))
PYTHON
}
until_true 120 measured
echo "	$(measured)"
kubectl delete pod holds >/dev/null

echo "pods that are frozen request what they occupy"
apply requests
# What the DaemonSet would run, with its rights; there is no image of it here.
kubectl --namespace kube-system delete daemonset squeezy-requests >/dev/null
# token_of NODE: what a pod of the DaemonSet has on this node.
token_of() {
	kubectl create --raw /api/v1/namespaces/kube-system/serviceaccounts/squeezy-requests/token -f - <<-JSON | python3 -c 'import json, sys; print(json.load(sys.stdin)["status"]["token"])'
		{"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
		 "spec": {"boundObjectRef": {"apiVersion": "v1", "kind": "Node", "name": "$1"}}}
	JSON
}
token_of node >"$work/keys/requests"
mkdir -p /run/squeezy/requests
ln -s "$(dirname "$shim")/squeezy-requests" "$work/bin/squeezy-requests"
start_requests() {
	KUBERNETES_SERVICE_HOST=$api_service KUBERNETES_SERVICE_PORT=443 start_program squeezy-requests \
		--token-file "$work/keys/requests" --certificate-file "$work/keys/apiserver.crt"
	requests=$!
	until_true 120 test -S /run/squeezy/requests/socket
}
frozen_pod() {
	kubectl get pods -l app=frozen -o jsonpath='{.items[0].metadata.name}'
}
start_requests
kubectl apply -f "$here/manifests/frozen.yaml" >/dev/null
kubectl rollout status deployment frozen --timeout=180s >/dev/null || die_with_events "it is not ready"
until_true 120 all_request -lt $((64 << 20))
all_request -ge $((1 << 20)) || die "it requests $(requested)"
echo "	$(requested) bytes of $((128 << 20))"
begin=$EPOCHREALTIME
says "$(frozen_pod)" page warm || die "it says: $(page "$(frozen_pod)" page)"
echo "	answered after $(since "$begin")"
all_request -eq $((128 << 20)) || die "it runs and requests $(requested)"
until_true 120 all_request -lt $((64 << 20))
[ "$(kubectl exec "$(frozen_pod)" -- cat /www/page)" = warm ] || die "exec does not work in it"
is "$(frozen_pod)" '.status.containerStatuses[0].restartCount' 0 || die "it was restarted"

echo "who has the token of another node cannot change what they request"
kubectl create -f - >/dev/null <<<'{"apiVersion": "v1", "kind": "Node", "metadata": {"name": "elsewhere"}}'
said=$(curl --silent --max-time 60 --cacert "$work/keys/apiserver.crt" -H "Authorization: Bearer $(token_of elsewhere)" \
	--request PATCH -H 'Content-Type: application/strategic-merge-patch+json' \
	"https://$node:6443/api/v1/namespaces/default/pods/$(frozen_pod)/resize" \
	-d '{"spec": {"containers": [{"name": "server", "resources": {"requests": {"memory": "1Mi"}}}]}}')
[[ $said == *"changes pods of its own node only"* ]] || die "it said: $said"
kubectl delete node elsewhere >/dev/null

echo "on a node that is full they wait"
until_true 120 all_request -lt $((64 << 20))
# All that is left, but for what the pod does without now.
free_mib=$(kubectl get node node -o json | python3 -c '
import json, subprocess, sys
def mib(text):
    units = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "k": 10**3, "M": 10**6, "G": 10**9, "": 1}
    unit = text.lstrip("0123456789")
    return int(text[:len(text) - len(unit)]) * units[unit] / 2**20
free = mib(json.load(sys.stdin)["status"]["allocatable"]["memory"])
pods = json.loads(subprocess.run(["kubectl", "get", "pods", "--all-namespaces", "-o", "json"], capture_output=True, check=True).stdout)
for pod in pods["items"]:
    free -= sum(mib(c["resources"].get("requests", {}).get("memory", "0")) for c in pod["spec"]["containers"])
    free -= mib(pod["spec"].get("overhead", {}).get("memory", "0"))
print(int(free))')
# What is refused because the other one rises at that moment is made again.
kubectl create -f - >/dev/null <<YAML
apiVersion: apps/v1
kind: Deployment
metadata: {name: greedy}
spec:
  selector: {matchLabels: {app: greedy}}
  template:
    metadata: {labels: {app: greedy}}
    spec:
      runtimeClassName: squeezy
      terminationGracePeriodSeconds: 1
      containers:
      - name: main
        image: docker.io/library/busybox:test
        command: [sleep, "100000"]
        resources: {requests: {memory: "$((free_mib - 60))Mi"}, limits: {memory: "$((free_mib - 60))Mi"}}
YAML
kubectl rollout status deployment greedy --timeout=180s >/dev/null || die_with_events "the node is not full"
waits() {
	! timeout 5 curl --silent --fail "http://$(status pod "$(frozen_pod)" .status.podIP):8080/page" &&
		[[ $(kubectl get pod "$(frozen_pod)" -o jsonpath='{.status.conditions[?(@.type=="PodResizePending")].reason}') == Deferred ]]
}
until_true 120 waits
kubectl delete deployment greedy --timeout=120s >/dev/null
until_true 120 says "$(frozen_pod)" page warm

echo "without anybody who changes requests they run all the same"
until_true 120 all_request -lt $((64 << 20))
kill "$requests"
wait "$requests" || true
until_true 120 says "$(frozen_pod)" page warm
start_requests
runs_in_full() {
	says "$(frozen_pod)" page warm && all_request -eq $((128 << 20))
}
until_true 120 runs_in_full
kubectl delete -f "$here/manifests/frozen.yaml" --timeout=120s >/dev/null
none_is_frozen() {
	local names
	names=$(kubectl get pods -l app=frozen -o name) && [ -z "$names" ]
}
until_true 120 none_is_frozen
kill "$requests"
wait "$requests" || true

# shellcheck source-path=SCRIPTDIR source=platforms.sh
. "$here/platforms.sh"

echo "five in one VM"
begin=$EPOCHREALTIME
kubectl scale deployment web --replicas=5 >/dev/null
kubectl rollout status deployment web --timeout=180s >/dev/null || die_with_events "they are not ready"
echo "	ready after $(since "$begin")"
[ "$(pgrep -c qemu-system)" = 1 ] || die "$(pgrep -c qemu-system) VMs instead of 1"
names=$(pods)
for name in $names; do
	[[ $(page "$name" environment) == "$name "* ]] || die "$name says: $(page "$name" environment)"
done
vm_group=$(vm_groups)
# What was frozen before may still be on its way out.
until_true 120 has_shares "$vm_group" $((5 * 122))
until_true 120 has_bound "$vm_group" "$(bound_of 5)"

# shellcheck source-path=SCRIPTDIR source=services.sh
. "$here/services.sh"

echo "kubelet and containerd restart under them"
ids() {
	kubectl get pods -l app=web -o jsonpath='{range .items[*].status.containerStatuses[*]}{.containerID}{"\n"}{end}' | sort
}
ids >"$work/ids"
kill "$kubelet"
wait "$kubelet" || true
kill -9 "$containerd"
wait "$containerd" 2>/dev/null || true
start_containerd
start_kubelet
kubelet_answers() {
	kubectl get --raw /api/v1/nodes/node/proxy/healthz
}
until_true 120 kubelet_answers
sleep 10
ids | diff "$work/ids" - || die "they are others than before"
names=$(pods)
for name in $names; do
	until_true 120 is_ready "$name" True
	[[ $(page "$name" environment) == "$name "* ]] || die "$name says: $(page "$name" environment)"
	[ "$(of "$name" cat /cache/state)" = prepared ] || die "exec does not work in $name"
done

# kubelet removes groups of pods that it does not know.
is_in "$vm_group" "$(pgrep qemu-system)" || die "their VM is not in its control group any more"

echo "their memory is the host's when they are deleted"
before=$(log | reclaims)
begin=$EPOCHREALTIME
kubectl scale deployment web --replicas=1 >/dev/null
until_true 120 has_pods 1
echo "	four are gone after $(since "$begin")"
[ "$(log | reclaims)" -ge $((before + 4)) ] || die "the memory of $(($(log | reclaims) - before)) pods is back"
[ "$(least_plugged)" = "$alone" ] || die "the VM has $(least_plugged) bytes instead of $alone"
until_true 120 has_shares "$vm_group" 512
until_true 120 has_bound "$vm_group" "$bound_of_one"
web=$(pods)
kubectl logs -f "$web" -c server >"$work/last" &
kubectl scale deployment web --replicas=0 >/dev/null
until_true 120 has_pods 0
until_true 120 no_vm_is_left
no_vm_group_is_left || die "there are control groups: $(vm_groups)"
until_true 120 grep "is told" "$work/last"

seed=${seed-$(date +%s)}
echo "kubelet is killed while pods come and go (seed $seed)"
RANDOM=$seed
mounts >"$work/mounts"
for _ in $(seq "${rounds-10}"); do
	# Never none, so that it is one VM.
	kubectl scale deployment web --replicas=$((1 + RANDOM % ${most-5})) >/dev/null
	sleep "$((RANDOM % 8)).$((RANDOM % 10))"
	kill -9 "$kubelet"
	wait "$kubelet" 2>/dev/null || true
	start_kubelet
done
until_true 120 kubelet_answers
kubectl scale deployment web --replicas=5 >/dev/null
kubectl rollout status deployment web --timeout=300s >/dev/null || die_with_events "they are not ready"
names=$(pods)
for name in $names; do
	[[ $(page "$name" environment) == "$name "* ]] || die "$name says: $(page "$name" environment)"
done
before=$(log | reclaims)
kubectl scale deployment web --replicas=1 >/dev/null
until_true 120 has_pods 1
has_memory_of_one() {
	[ "$(least_plugged)" = "$alone" ]
}
until_true 120 has_memory_of_one
kubectl scale deployment web --replicas=0 >/dev/null
until_true 120 has_pods 0

echo "nothing is left"
until_true 120 no_vm_is_left
no_vm_group_is_left || die "there are control groups: $(vm_groups)"
# What a killed kubelet had mounted for pods is removed by the next one.
are_as_before() {
	mounts | cmp --silent - "$work/mounts"
}
until_true 120 are_as_before
# kubelet looks for them once a minute.
until_true 180 no_record_is_left
no_bundle_is_left || die "there are bundles"
stop_cluster
kill "$containerd"
