#!/usr/bin/env bash
# Runs Kubernetes' own tests of container runtimes, critest, with the newer containerd, as far as they need nothing that
# docs/cri.md says is not there.
# usage: host/shim/tests/critest.sh SHIM
set -euo pipefail
if [ "${2-}" != inside ]; then
	# shellcheck disable=SC2034 # it is for what is sourced
	containerds=$("$(dirname "$0")/containerds.sh" newest)
fi
# shellcheck source-path=SCRIPTDIR source=cri-common.sh
. "$(dirname "$0")/cri-common.sh"

skipped=(
	# They pull images of others, of which there are none here, or need programs that this one has not, or has in its
	# shell.
	'Image' 'SupplementalGroupsPolicy' 'NoNewPrivs' 'Multiple Containers' 'PodPID' 'HostIpc is false' 'MaskedPaths'
	# What no pod has.
	'HostPID' 'HostIpc is true' 'HostNetwork is true' 'in host network' 'Privileged is true' 'when privileged'
	'adding capability' 'SYS_ADMIN' 'unconfined' 'ContainerPID' 'sysctls'
	'with volume' 'Mount Propagation' 'Mount Readonly'
	# What there is not yet: a limit of a container below its pod's, and the network.
	'OOMKilled' 'port mapping' 'portforward'
	# Not of this machine, or not of runtimes.
	'SELinux' 'AppArmor' 'NRI' 'benchmark'
)
# Their pods have no memory limit.
rm "$work/bin/containerd-shim-squeezy-v2"
cat >"$work/bin/containerd-shim-squeezy-v2" <<PYTHON
#!/usr/bin/env python3
import json, os, sys
if "start" in sys.argv:
    with open("config.json") as file:
        config = json.load(file)
    annotations = config.get("annotations", {})
    if annotations.get("io.kubernetes.cri.container-type") == "sandbox":
        annotations["io.kubernetes.cri.sandbox-memory"] = str(128 << 20)
        with open("config.json", "w") as file:
            json.dump(config, file)
os.execv("$shim", sys.argv)
PYTHON
chmod +x "$work/bin/containerd-shim-squeezy-v2"

# What they execute of their own image.
make_layer
mkdir -p "$work/layer/etc"
for command in $(busybox --list); do
	# Not symbolic ones, which would be followed where a test hides a program.
	ln -f "$work/layer/bin/busybox" "$work/layer/bin/$command" 2>/dev/null || true
done
cat >"$work/layer/bin/pgrep" <<'SH'
#!/bin/sh
for process in /proc/[0-9]*; do
	[ "$(cat $process/comm 2>/dev/null)" != "$1" ] || { echo ${process#/proc/} && found=yes; }
done
[ "$found" ]
SH
chmod +x "$work/layer/bin/pgrep"
printf '%s\n' 'root:x:0:0:root:/:/bin/sh' 'nobody:x:65534:65534:nobody:/:/bin/sh' >"$work/layer/etc/passwd"
echo 'root:x:0:' >"$work/layer/etc/group"
make_image "$work/layer"
start_with_image
echo "defaultTestContainerImage: $image" >"$work/images.yaml"

critest.test -runtime-endpoint unix:///run/containerd/containerd.sock -runtime-handler squeezy \
	-test-images-file "$work/images.yaml" -ginkgo.no-color -ginkgo.skip="$(IFS="|" && echo "${skipped[*]}")" || die "some have failed"
kill "$containerd"
