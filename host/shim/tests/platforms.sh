# Pods as Knative Serving and OpenWhisk make them, which the API server, the scheduler and kubelet take; to be sourced by
# kubernetes.sh when one web server is there, whose VM has `alone` bytes.
# shellcheck shell=bash
# shellcheck disable=SC2154 # kubernetes.sh has set it

# shellcheck source-path=SCRIPTDIR source=platforms-common.sh
. "$here/platforms-common.sh"

# has_said POD CONTAINER TEXT
has_said() {
	[[ $(kubectl logs "$1" -c "$2") == *"$3"* ]]
}
# is_not_there POD: fails if the API server does not answer.
is_not_there() {
	local name
	name=$(kubectl get pods --field-selector "metadata.name=$1" -o name) && [ -z "$name" ]
}
# memory_is_back COUNT: whether so many pods more than `before` have given back their memory.
memory_is_back() {
	[ "$(log | reclaims)" = $((before + $1)) ]
}

echo "a pod of Knative is ready when its queue-proxy says so, and ends when it has answered"
import_queue_image
knative <"$here/manifests/knative.yaml" >"$work/knative.json"
before=$(log | reclaims)
kubectl apply -f "$work/knative.json" >/dev/null
kubectl rollout status deployment hello-00001-deployment --timeout=180s >/dev/null || die_with_events "it is not ready"
[ "$(pgrep -c qemu-system)" = 1 ] || die "it is not in the web server's VM"
hello=$(kubectl get pods -l serving.knative.dev/service=hello -o jsonpath='{.items[*].metadata.name}')
address=$(status pod "$hello" .status.podIP)
said=$(curl --silent --show-error --fail --max-time 60 "http://$address:8012/environment")
[ "$said" = "hello hello hello-00001 8080" ] || die "its environment: $said"
kubectl logs -f "$hello" -c user-container >"$work/hello" &
curl --silent --show-error --fail --max-time 60 "http://$address:8012/cgi-bin/slow" >"$work/slow" &
slow=$!
until_true 120 has_said "$hello" user-container "is asked"
# kubelet calls the hook of the Service's container, in which queue-proxy waits for the request and for half a minute more.
kubectl delete -f "$work/knative.json" >/dev/null
wait "$slow" || die "it has not answered"
[ "$(cat "$work/slow")" = "at last" ] || die "it has answered: $(cat "$work/slow")"
until_true 180 is_not_there "$hello"
until_true 120 grep -q "is told" "$work/hello"
until_true 120 memory_is_back 1
[ "$(log | plugged)" = "$alone" ] || die "the VM has $(log | plugged) bytes instead of $alone"

echo "a pod of OpenWhisk is placed where its invokers are, initialized and called"
import_action_image
action=wsk0-1-guest-hello
kubectl create -f "$here/manifests/openwhisk.json" >/dev/null
is_unschedulable() {
	is "$action" '.status.conditions[?(@.type=="PodScheduled")].reason' Unschedulable
}
until_true 120 is_unschedulable
kubectl label node node openwhisk-role=invoker >/dev/null
until_true 120 is "$action" .status.phase Running
address=$(status pod "$action" .status.podIP)
until_true 120 listens "$address"
said=$(post "$address" init "$code")
[ "$said" = '200 {"ok":true}' ] || die "it is not initialized: $said"
for number in 1 2 3; do
	said=$(post "$address" run "$(call "$number")")
	[ "$said" = "$(answer "$number")" ] || die "it has answered $said instead of $(answer "$number")"
done
until_true 120 has_said "$action" user-action XXX_THE_END_OF_A_WHISK_ACTIVATION_XXX
is "$action" '.status.containerStatuses[0].restartCount' 0 || die "it was restarted"
kubectl delete pod "$action" --timeout=120s >/dev/null
until_true 120 memory_is_back 2
# Its VM, which is for pods of its size, ends with it.
only_one_vm_is_left() {
	[ "$(pgrep -c qemu-system)" = 1 ]
}
until_true 120 only_one_vm_is_left
