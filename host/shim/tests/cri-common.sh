# What the tests through CRI share; to be sourced as containerd-common.sh is.
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
  sandbox_image = "$image"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "${programs##*:}"
    conf_dir = "$work/cni"
  [plugins."io.containerd.grpc.v1.cri".containerd]
    default_runtime_name = "squeezy"
TOML
# As docs/kubernetes.md says for each version of containerd.
if [[ $(containerd --version) == *"/containerd/v2 "* ]]; then
	sed -i "1i imports = [\"$packaging/containerd.toml\"]" "$work/config.toml"
else
	sed '/^version/d' "$packaging/containerd.toml" >>"$work/config.toml"
fi
mkdir "$work/cni"
cat >"$work/cni/10-pods.conflist" <<JSON
{"cniVersion": "1.0.0", "name": "pods", "plugins": [
  {"type": "ptp", "ipam": {"type": "host-local", "subnet": "10.88.0.0/24", "dataDir": "$work/addresses"}}
]}
JSON
