#!/usr/bin/env bash
# Runs the pod that OpenWhisk's KubernetesContainerFactory makes for an action, through CRI: with Debian's containerd and
# a newer one. What OpenWhisk's invoker would ask the pod, this does.
#
# manifests/openwhisk.json is what WhiskPodBuilder of Apache OpenWhisk makes (commit 039780b0), with a runtime class from
# its pod template.
# usage: host/shim/tests/openwhisk.sh SHIM
set -euo pipefail
if [ "${2-}" != inside ]; then
	containerds=$("$(dirname "$0")/containerds.sh" debian newest)
fi
# shellcheck source-path=SCRIPTDIR source=cri-common.sh
. "$(dirname "$0")/cri-common.sh"
# shellcheck source-path=SCRIPTDIR source=as-kubelet.sh
. "$here/as-kubelet.sh"
# shellcheck source-path=SCRIPTDIR source=platforms-common.sh
. "$here/platforms-common.sh"

# says ANSWER POD PATH BODY
says() {
	local said
	said=$(post "${addresses[$2]}" "${@:3}") || true
	[ "$said" = "$1" ] || die "$2 has answered $said instead of $1"
}
log_has() {
	[ "$(crictl logs "${containers[$1/user-action]}" 2>&1 | grep -c "$2")" = "$3" ]
}

make_layer
ln -s busybox "$work/layer/bin/awk"
make_image "$work/layer"
start_with_image
import_action_image

echo "$(containerd --version | cut -d' ' -f3): an action's pod is initialized and answers"
manifest=$here/manifests/openwhisk.json
run_pod first "$manifest"
until_true 120 listens "${addresses[first]}"
says '200 {"ok":true}' first init "$code"
[[ $(post "${addresses[first]}" init "$code") == "403 "* ]] || die "it is initialized twice"
run_pod second "$manifest"
until_true 120 listens "${addresses[second]}"
[ "$(pgrep -c qemu-system)" = 1 ] || die "there is not one VM"
[[ $(post "${addresses[second]}" run "$(call 0)") == [45]??" "* ]] || die "it runs before it is initialized"
says '200 {"ok":true}' second init "$code"
for number in 1 2 3; do
	for name in first second; do
		says "$(answer $number)" $name run "$(call $number)"
	done
done
# An activation's log ends with a line of its own in each stream, by which OpenWhisk tells it from the next.
until_true 120 log_has first "is called" 3
until_true 120 log_has first XXX_THE_END_OF_A_WHISK_ACTIVATION_XXX 6

echo "its memory is the host's when it is deleted"
remove_pod second
until_true 120 memory_is_back 1
alone=$(log | plugged)
[ "${alone:-0}" -gt 0 ] || die "the server does not say how much memory its pods have"
run_pod third "$manifest"
until_true 120 listens "${addresses[third]}"
says '200 {"ok":true}' third init "$code"
says "$(answer 1)" third run "$(call 1)"
remove_pod third
until_true 120 memory_is_back 2
[ "$(log | plugged)" = "$alone" ] || die "the VM has $(log | plugged) bytes instead of $alone"
says "$(answer 4)" first run "$(call 4)"
remove_pod first
until_true 120 no_vm_is_left

kill "$containerd"
