#!/usr/bin/env bash
# Runs the pod that Knative Serving makes for a Service, with its own queue-proxy, through CRI: with Debian's containerd
# and a newer one. What kubelet would ask the pod, this does.
# usage: host/shim/tests/knative.sh SHIM
set -euo pipefail
if [ "${2-}" != inside ]; then
	more_programs=$("$(dirname "$0")/knative/build.sh")
	containerds=$("$(dirname "$0")/containerds.sh" debian newest)
fi
# shellcheck source-path=SCRIPTDIR source=cri-common.sh
. "$(dirname "$0")/cri-common.sh"
# shellcheck source-path=SCRIPTDIR source=as-kubelet.sh
. "$here/as-kubelet.sh"
# shellcheck source-path=SCRIPTDIR source=platforms-common.sh
. "$here/platforms-common.sh"

# at POD PORT PATH OPTION...: what a pod answers.
at() {
	curl --silent --show-error --fail --max-time 60 "${@:4}" "http://${addresses[$1]}:$2/$3"
}
# is_ready POD: as queue-proxy's readiness probe asks it, which then asks the Service's own container.
is_ready() {
	at "$1" 8012 '' --user-agent kube-probe/1.33 -H 'K-Network-Probe: queue' >/dev/null
}
log_has() {
	[[ $(crictl logs "${containers[$1]}" 2>&1) == *"$2"* ]]
}

make_layer
for command in chmod httpd mkdir; do
	ln -s busybox "$work/layer/bin/$command"
done
make_image "$work/layer"
start_with_image
import_queue_image
knative <"$here/manifests/knative.yaml" >"$work/deployment.json"

echo "$(containerd --version | cut -d' ' -f3): a Service's pod is ready and answers"
run_pod first "$work/deployment.json"
until_true 120 is_ready first
[ "$(pgrep -c qemu-system)" = 1 ] || die "there is not one VM"
said=$(at first 8012 environment)
[ "$said" = "hello hello hello-00001 8080" ] || die "its environment: $said"
run_pod second "$work/deployment.json"
until_true 120 is_ready second
[ "$(pgrep -c qemu-system)" = 1 ] || die "there is not one VM"
for number in $(seq 20); do
	at second 8012 environment >"$work/many-$number" &
	many+=("$!")
done
wait_for_all "${many[@]}" || die "one of 20 at a time has failed"
[ "$(sort -u "$work"/many-*)" = "$said" ] || die "they were told: $(sort -u "$work"/many-*)"
# The autoscaler's numbers, which name their pod.
at second 9090 metrics >"$work/metrics"
grep -aq second "$work/metrics" || die "its metrics name nobody"

echo "it ends when it has answered what it was asked before"
at second 8012 cgi-bin/slow >"$work/slow" &
slow=$!
until_true 120 log_has second/user-container "is asked"
# queue-proxy is told to end, and goes on for 30 s after the last request. The Service's container has a hook that takes as
# long, and is told afterwards.
crictl stop --timeout 300 "${containers[second/queue-proxy]}" >/dev/null &
stop=$!
until_true 120 log_has second/queue-proxy "Received TERM"
at second 8022 wait-for-drain --max-time 120 >/dev/null &
hook=$!
is_not_ready() {
	! is_ready second
}
until_true 120 is_not_ready
[ "$(what state second/user-container)" = CONTAINER_RUNNING ] || die "it has ended before it was told"
wait "$slow" || die "it has not answered"
[ "$(cat "$work/slow")" = "at last" ] || die "it has answered: $(cat "$work/slow")"
wait "$hook" || die "the hook has failed"
log_has second/user-container "is told" && die "it was told to end by somebody else"
crictl stop --timeout 300 "${containers[second/user-container]}" >/dev/null
wait "$stop" || die "queue-proxy cannot be stopped"
for container in user-container queue-proxy; do
	[ "$(what exitCode "second/$container")" = 0 ] || die "$container has ended with $(what exitCode "second/$container")"
done
log_has second/user-container "is told" || die "it was not told to end"
remove_pod second

echo "its memory is the host's when it has ended"
until_true 120 memory_is_back 1
alone=$(log | plugged)
[ "${alone:-0}" -gt 0 ] || die "the server does not say how much memory its pods have"
run_pod third "$work/deployment.json"
until_true 120 is_ready third
remove_pod third
until_true 120 memory_is_back 2
[ "$(log | plugged)" = "$alone" ] || die "the VM has $(log | plugged) bytes instead of $alone"
is_ready first || die "the first pod has ended with the others"
remove_pod first
until_true 120 no_vm_is_left

kill "$containerd"
