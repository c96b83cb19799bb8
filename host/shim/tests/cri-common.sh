# What the tests through CRI share; to be sourced as containerd-common.sh is. `installer` is who installs the shim: `pod`
# for the pods of squeezy-node's DaemonSet, before which runc runs all pods; `image` for what such a pod runs; the test
# itself if it is not set. `more_plugins` are those of the network that follow the first one, each after a comma.
# shellcheck shell=bash

# shellcheck disable=SC2034 # it is for what is sourced
cri=yes
# shellcheck source-path=SCRIPTDIR source=containerd-common.sh
. "$(dirname "${BASH_SOURCE[0]}")/containerd-common.sh"

packaging=$here/../../../packaging/kubernetes
busybox ip link set lo up
export CRI_CONFIG_FILE=$work/crictl.yaml
cat >"$CRI_CONFIG_FILE" <<YAML
runtime-endpoint: unix:///run/containerd/containerd.sock
image-endpoint: unix:///run/containerd/containerd.sock
timeout: 120
YAML
cat >>"$work/config.toml" <<TOML
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "${sandbox_image-$image}"
  # Root of a container may not lower it below its own.
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "${programs##*:}"
    conf_dir = "$work/cni"
  [plugins."io.containerd.grpc.v1.cri".containerd]
    default_runtime_name = "$([ "${installer-}" = pod ] && echo runc || echo squeezy)"
TOML
# Otherwise as docs/kubernetes.md says for each version of containerd.
if [ -n "${installer-}" ]; then
	# shellcheck source-path=SCRIPTDIR source=node-common.sh
	. "$here/node-common.sh"
	[ "$installer" = pod ] || squeezy_node install
elif [[ $(containerd --version) == *"/containerd/v2 "* ]]; then
	sed -i "1i imports = [\"$packaging/containerd.toml\"]" "$work/config.toml"
else
	sed '/^version/d' "$packaging/containerd.toml" >>"$work/config.toml"
fi
mkdir "$work/cni"
pod_addresses=10.88.0.0/24
cat >"$work/cni/10-pods.conflist" <<JSON
{"cniVersion": "1.0.0", "name": "pods", "plugins": [
  {"type": "ptp", "ipam": {"type": "host-local", "subnet": "$pod_addresses", "dataDir": "$work/addresses",
    "routes": [{"dst": "0.0.0.0/0"}]}}${more_plugins-}
]}
JSON

# import_image NAME: gives containerd the image that was made, which has this name.
import_image() {
	ctr --namespace k8s.io image import "$work/image.tar" >/dev/null
	until_true 120 crictl inspecti "$1"
}
# Starts containerd, and gives it the image that was made.
start_with_image() {
	start_containerd
	import_image "$image"
}
# until_forwarded SECONDS PATH TEXT COMMAND...: waits until that is said at a path of port 18080, which the command forwards
# as long as it runs, and ends it.
until_forwarded() {
	local forwarding seconds=$1 path=$2 text=$3
	"${@:4}" >"$work/forwarding" 2>&1 &
	forwarding=$!
	until_true "$seconds" says_at_18080 "$path" "$text"
	kill "$forwarding"
	wait "$forwarding" 2>/dev/null || true
}
says_at_18080() {
	[ "$(curl --silent --max-time 20 "http://127.0.0.1:18080/$1")" = "$2" ]
}
mounts() {
	cut -d' ' -f2 /proc/self/mounts | sort
}
# What follows fails if whoever is asked does not answer.
# no_record_is_left: whether CRI has neither containers nor pods.
no_record_is_left() {
	local left
	left=$(crictl ps --all --quiet && crictl pods --quiet) && [ -z "$left" ]
}
# no_bundle_is_left: whether containerd has no directory of a container.
no_bundle_is_left() {
	local left
	left=$(ls /run/containerd/io.containerd.runtime.v2.task/k8s.io) && [ -z "$left" ]
}
# no_link_is_left: whether there is no network device but the loopback interface.
no_link_is_left() {
	local links
	links=$(busybox ip -o link) && [ "$(wc -l <<<"$links")" = 1 ]
}
# each_plugged: of a server's log, how much memory the VM's pods had after each one that gave its own back, in bytes.
each_plugged() {
	sed -n 's/.*the memory of a pod is back.*plugged_bytes=\([0-9]*\).*/\1/p'
}
# plugged: the same after the last one.
plugged() {
	each_plugged | tail -n 1
}
