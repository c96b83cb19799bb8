#!/usr/bin/env bash
# Runs Kubernetes' own tests of container runtimes, critest, with the newer containerd, as far as they need nothing that
# docs/cri.md says is not there.
# usage: host/shim/tests/critest.sh SHIM
set -euo pipefail
if [ "${2-}" != inside ]; then
	# shellcheck disable=SC2034 # it is for what is sourced
	containerds=$("$(dirname "$0")/containerds.sh" newest)
fi
# Leads from a port of the node to one of a pod.
# shellcheck disable=SC2034 # it is for what is sourced
more_plugins=', {"type": "portmap", "capabilities": {"portMappings": true}}'
# shellcheck source-path=SCRIPTDIR source=cri-common.sh
. "$(dirname "$0")/cri-common.sh"

skipped=(
	# They pull images of others, of which there are none here.
	'Image' 'NoNewPrivs' 'Multiple Containers' 'PodPID'
	# It hides a program that this image has in its shell.
	'MaskedPaths'
	# What no pod has; process 1 is never the container's.
	'HostPID' 'HostIpc is true' 'HostNetwork is true' 'in host network' 'Privileged is true' 'when privileged'
	'adding capability' 'SYS_ADMIN' 'unconfined' 'ContainerPID' 'sysctls'
	'with volume' 'Mount Propagation' 'Mount Readonly'
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
# Of `ipcs`, what one asks for.
printf '#!/bin/sh\nexec cat /proc/sysvipc/shm\n' >"$work/layer/bin/ipcs"
chmod +x "$work/layer/bin/pgrep" "$work/layer/bin/ipcs"
printf '%s\n' 'root:x:0:0:root:/:/bin/sh' 'nobody:x:65534:65534:nobody:/:/bin/sh' 'user:x:1000:1000:user:/:/bin/sh' \
	>"$work/layer/etc/passwd"
printf '%s\n' 'root:x:0:' 'user:x:1000:' 'more:x:50000:user' >"$work/layer/etc/group"
make_image "$work/layer"
start_with_image
# One that has that user in a second group.
grouped=gcr.io/k8s-staging-cri-tools/test-image-predefined-group:latest
ctr --namespace k8s.io image tag "$image" "$grouped" >/dev/null
until_true 30 crictl inspecti "$grouped"
# A web server, for those of ports.
mkdir "$work/layer/www"
echo hello >"$work/layer/www/index.html"
name=web entrypoint='["busybox", "httpd", "-f", "-p", "80", "-h", "/www"]' make_image "$work/layer"
import_image docker.io/library/web:test
printf '%s\n' "defaultTestContainerImage: $image" "webServerTestImage: docker.io/library/web:test" >"$work/images.yaml"

critest.test -runtime-endpoint unix:///run/containerd/containerd.sock -runtime-handler squeezy \
	-test-images-file "$work/images.yaml" -ginkgo.no-color -ginkgo.skip="$(IFS="|" && echo "${skipped[*]}")" || die "some have failed"
kill "$containerd"
