#!/usr/bin/env bash
# Installs the runtime on the node of a Kubernetes cluster by the DaemonSet of a release, while runc runs pods there, runs a
# pod in a VM, and removes the runtime by the other DaemonSet: with Debian's containerd, and a newer one.
# usage: host/shim/tests/daemonset.sh SHIM
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
if [ "${2-}" != inside ]; then
	if [ -z "${in_own_cgroups-}" ]; then
		in_own_cgroups=yes exec "$here/own-cgroups.sh" "$0" "$@"
	fi
	more_programs=$("$here/cluster/build.sh")
	more_programs+=:$("$here/get-etcd.sh")
	more_programs+=:$("$here/get-runc.sh")
	# shellcheck disable=SC2034 # it is for what is sourced
	containerds=$("$here/containerds.sh" newest debian)
fi
# shellcheck disable=SC2034 # they are for what is sourced
installer=pod sandbox_image=docker.io/library/pause:test
# shellcheck source-path=SCRIPTDIR source=cri-common.sh
. "$here/cri-common.sh"
# shellcheck source-path=SCRIPTDIR source=cluster-common.sh
. "$here/cluster-common.sh"

# What systemd does for mounts, and for containerd.
mount --make-rshared /
: >"$work/is-service"
run_service() {
	while [ -e "$work/is-service" ]; do
		"$(command -v containerd)" --config /etc/containerd/config.toml >>"$work/containerd.log" 2>&1 &
		echo $! >"$work/containerd.pid"
		wait $! || true
	done
}
cat >/usr/local/bin/systemctl <<SH
#!/bin/sh
case "\$*" in
"show --property=MainPID --value containerd") exec cat "$work/containerd.pid" ;;
"restart containerd")
	echo restart >>"$work/restarts"
	kill "\$(cat "$work/containerd.pid")"
	sleep 1
	until "$(command -v ctr)" version >/dev/null 2>&1; do sleep 0.1; done ;;
*) exit 1 ;;
esac
SH
restarts() {
	wc -l <"$work/restarts"
}
# is_rolled_out NAME: a DaemonSet's pod is ready on the node.
is_rolled_out() {
	kubectl --namespace kube-system rollout status daemonset "$1" --timeout=180s >/dev/null || {
		kubectl --namespace kube-system logs --all-containers --prefix -l "app=$1" >&2 || true
		die_with_events "$1 is not ready"
	}
}
log_of() {
	kubectl --namespace kube-system logs -l "app=$1" -c "$2" --tail=100
}

make_layer
cp -r "$work/layer" "$work/pause"
cp -r "$work/layer/bin" "$node_image/bin"
make_image "$work/layer"
: >"$work/restarts"
run_service &
until_true 120 ctr version
import_image "$image"
name=pause entrypoint='["/bin/sleep","1000000"]' make_image "$work/pause"
import_image docker.io/library/pause:test
mkdir "$node_image/host" "$node_image/tmp"
install "$(dirname "$shim")/../x86_64-unknown-linux-musl/debug/squeezy-requests" "$node_image/usr/bin/squeezy-requests"
name=squeezy-node entrypoint='["/usr/bin/squeezy-node"]' make_image "$node_image"
import_image docker.io/library/squeezy-node:test
start_cluster
echo "$(containerd --version | cut -d' ' -f3), $(kubelet --version): a DaemonSet installs the runtime"
apply daemonset
is_rolled_out squeezy-node
said=$(log_of squeezy-node install)
[[ $said == *"this node has io.containerd.squeezy.v2"* ]] || die "it said: $said"
[ "$(restarts)" = 1 ] || die "containerd was restarted $(restarts) times"

echo "a pod runs in a VM"
kubectl apply -f "$packaging/runtimeclass.yaml" >/dev/null
kubectl apply -f "$here/manifests/hello.yaml" >/dev/null
until_true 120 is hello .status.phase Succeeded
[ "$(kubectl logs hello)" = "hello from 6.12" ] || die "it said: $(kubectl logs hello)"
kubectl delete pod hello --timeout=120s >/dev/null
until_true 120 no_vm_is_left

echo "a frozen pod requests what it occupies"
apply requests
is_rolled_out squeezy-requests
kubectl apply -f "$here/manifests/frozen.yaml" >/dev/null
kubectl rollout status deployment frozen --timeout=180s >/dev/null || die_with_events "it is not ready"
until_true 120 all_request -lt $((64 << 20))
kubectl delete -f "$here/manifests/frozen.yaml" --timeout=120s >/dev/null
until_true 120 no_vm_is_left
kubectl --namespace kube-system delete daemonset squeezy-requests --timeout=120s >/dev/null

echo "the other one removes it"
kubectl --namespace kube-system delete daemonset squeezy-node --timeout=120s >/dev/null
apply removal
is_rolled_out squeezy-removal
said=$(log_of squeezy-removal remove)
[[ $said == *"this node has nothing of the runtime any more"* ]] || die "it said: $said"
[ "$(restarts)" = 2 ] || die "containerd was restarted $(restarts) times"
cmp /etc/containerd/config.toml "$work/config-before.toml" || die "containerd's configuration is another than before"
# What was there before and has gone is a character device in an overlay.
left=$(find "$work"/node/*/*/changed -name '*squeezy*' ! -type c)
[ -z "$left" ] || die "left: $left"
[ ! -e /run/squeezy ] || die "left: $(find /run/squeezy)"
kubectl --namespace kube-system delete daemonset squeezy-removal --timeout=120s >/dev/null
rm "$work/is-service"
stop_cluster
pkill -x containerd
