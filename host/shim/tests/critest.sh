#!/usr/bin/env bash
# Runs Kubernetes' own tests of container runtimes, critest, with the newer containerd, as far as they need nothing that
# docs/cri.md says is not there.
# usage: host/shim/tests/critest.sh SHIM
set -euo pipefail
run_registry=$(dirname "$0")/../../squeezy/tests/registry/run.sh
if [ "${2-}" != inside ]; then
	# shellcheck disable=SC2034 # it is for what is sourced
	containerds=$("$(dirname "$0")/containerds.sh" newest)
	# Gets it, while there is a network.
	"$run_registry" --version >/dev/null
fi
# Leads from a port of the node to one of a pod.
# shellcheck disable=SC2034 # it is for what is sourced
more_plugins=', {"type": "portmap", "capabilities": {"portMappings": true}}'
# shellcheck source-path=SCRIPTDIR source=cri-common.sh
. "$(dirname "$0")/cri-common.sh"

skipped=(
	# It pulls an image that Kubernetes has made, by its digest.
	'public image with digest'
	# Its volume is a whole image, with the program that is executed in it; a read-only volume has 1 MiB.
	'should correctly mount image'
	# What no pod has: it is refused, or left out.
	'HostPID' 'HostIpc is true' 'HostNetwork is true' 'in host network' 'Privileged is true' 'when privileged'
	'adding capability' 'sysctls'
	# There always is a filter of system calls.
	'unconfined'
	# Process 1 is never the container's.
	'ContainerPID'
	# Volumes of the host that can be written to.
	'with volume' 'Mount Propagation'
	# One writes to what is mounted in a read-only volume, which is a copy with all that is in it. The others skip
	# themselves, as the shim does not tell containerd that it is so.
	'Mount Readonly'
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

# compile NAME PLACE: one of the programs for images.
compile() {
	musl-gcc -std=gnu11 -O2 -static -Wall -Wextra -Werror -o "$work/$1" "$here/critest/$1.c"
	# The name may have been another program's.
	mv "$work/$1" "$2"
}
# What they execute of their own image.
make_layer
mkdir -p "$work/layer/etc"
for command in $(busybox --list); do
	# Not symbolic ones, which would be followed where a test hides a program.
	ln -f "$work/layer/bin/busybox" "$work/layer/bin/$command" 2>/dev/null || true
done
compile sh "$work/layer/bin/sh"
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

# All other images they pull, from a registry that stands for each other one.
mkdir -p "$work/logs" "$work/registries/_default"
cat >"$work/registry.yml" <<YAML
version: 0.1
log: {level: warn, accesslog: {disabled: true}}
storage: {filesystem: {rootdirectory: $work/registry}}
http: {addr: "127.0.0.1:5000"}
YAML
"$run_registry" serve "$work/registry.yml" >"$work/logs/registry.log" 2>&1 &
registry=$!
until_true 120 curl --silent --fail http://127.0.0.1:5000/v2/
echo 'server = "http://127.0.0.1:5000"' >"$work/registries/_default/hosts.toml"
cat >>"$work/config.toml" <<TOML
[plugins."io.containerd.grpc.v1.cri".registry]
  config_path = "$work/registries"
TOML
make_image "$work/layer"
start_with_image

# serve NAME...: the registry has the image that was made, by these names.
serve() {
	local served
	for served; do
		skopeo copy --quiet --insecure-policy --dest-tls-verify=false "docker-archive:$work/image.tar" \
			"docker://127.0.0.1:5000/$served"
	done
}
# make_another NAME: an image like their own, and none of the others. Who removes one of its names removes all of them.
make_another() {
	mkdir -p "$work/another/$1"
	touch "$work/another/$1/$1"
	make_image "$work/layer" "$work/another/$1"
}
theirs=k8s-staging-cri-tools/test-image
for another in 1:latest 2:latest 3:latest latest:latest tag:all tag:test; do
	make_another "$another"
	serve "$theirs-$another"
done
make_another tags
serve "$theirs-tags:1" "$theirs-tags:2" "$theirs-tags:3"
make_another pause
serve pause:3.9
for another in uid=1002 username=www-data uid-group=1003:1004 username-group=www-data:1004; do
	user=${another#*=} make_image "$work/layer"
	serve "$theirs-user-${another%%=*}:latest"
done
# One that has that user in a second group.
user=1000 make_image "$work/layer"
serve "$theirs-predefined-group:latest"
# A web server, which says its name in its log.
mkdir -p "$work/web/www"
echo hello >"$work/web/www/index.html"
entrypoint='["sh", "-c", "echo httpd; exec busybox httpd -f -p 80 -h /www"]' make_image "$work/layer" "$work/web"
serve e2e-test-images/nginx:1.14-2 e2e-test-images/httpd:2.4.39-4
mkdir "$work/setuid"
compile nonewprivs "$work/setuid/nonewprivs"
chmod 4755 "$work/setuid/nonewprivs"
entrypoint='["/nonewprivs"]' make_image "$work/setuid"
serve e2e-test-images/nonewprivs:1.3

echo "defaultTestContainerImage: $image" >"$work/images.yaml"
critest.test -runtime-endpoint unix:///run/containerd/containerd.sock -runtime-handler squeezy \
	-test-images-file "$work/images.yaml" -ginkgo.no-color -ginkgo.skip="$(IFS="|" && echo "${skipped[*]}")" |
	tee "$work/said" || die "some have failed"
# A pattern of what is left out may match more than it is meant to.
ran=$(sed -n 's/^Ran \([0-9]*\) of .*/\1/p' "$work/said")
[ "${ran:-0}" -ge 83 ] || die "only ${ran:-0} have run"
kill "$containerd" "$registry"
