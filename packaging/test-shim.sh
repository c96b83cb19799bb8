#!/usr/bin/env bash
# Builds the packages of the shim and the image for nodes of what has been built, and installs and removes them in trees
# of their own: the packages with dpkg, without what they depend on, and the image as a pod of its DaemonSet does. About a
# minute. As root; the kernel, the initramfs and target/release/containerd-shim-squeezy-v2 have to be there.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=../scripts/common.sh
. "$(dirname "$0")/../scripts/common.sh"

own=$root/packaging
[ "$(id -u)" = 0 ] || die "run this as root: it changes the root directory"
need busybox busybox-static
need umoci umoci
debian=$("$root/host/shim/tests/get-containerd.sh")

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# make_node TREE: as little of a node as there can be. busybox is what scripts of packages run with.
make_node() {
	local library
	mkdir -p "$1"/{bin,dev,usr/bin,usr/share/seabios,tmp,run,var/lib/dpkg/{info,updates},etc/containerd}
	cp /bin/busybox "$1/bin/busybox"
	chroot "$1" /bin/busybox --install -s /bin
	mknod -m 666 "$1/dev/null" c 1 3
	: >"$1/var/lib/dpkg/status"
	: >"$1/usr/share/seabios/bios-256k.bin"
	cp "$debian/containerd" /usr/bin/flock "$1/usr/bin/"
	# Those of the shim are containerd's, and one more.
	for library in /lib64/ld-linux-x86-64.so.2 /lib/x86_64-linux-gnu/lib{c,m,gcc_s}.so.[0-9]; do
		install -D "$library" "$1$library"
	done
	for program in qemu-system-x86_64 mkfs.erofs bwrap; do
		printf '#!/bin/sh\n' >"$1/usr/bin/$program"
		chmod 755 "$1/usr/bin/$program"
	done
	install "$root/host/shim/tests/systemctl.sh" "$1/usr/bin/systemctl"
	printf 'version = 2\n' >"$1/etc/containerd/config.toml"
}
# files TREE: all that is no directory, without what dpkg writes down.
files() {
	(cd "$1" && find . ! -type d ! -path './var/lib/dpkg/*' ! -path './var/log/*' ! -name .lock | sort | xargs sha256sum)
}
dpkg_in() {
	DEBIAN_FRONTEND=noninteractive dpkg --root="$1" --force-depends "${@:2}" >"$work/dpkg" 2>&1
}

packages=()
for name in squeezy-guest squeezy-shim; do
	packages+=("$("$own/debian.sh" "$name" "$work")")
done
make_node "$work/node"
files "$work/node" >"$work/before"
dpkg_in "$work/node" --install "${packages[@]}" || die "dpkg: $(tail -1 "$work/dpkg")"
grep -q "squeezy-shim: containerd has to be told" "$work/dpkg" || die "it does not say what to do next"
for file in usr/bin/containerd-shim-squeezy-v2 usr/lib/squeezy/kernel/release/bzImage usr/lib/squeezy/initramfs.cpio \
	usr/share/squeezy/containerd.toml usr/share/doc/squeezy-shim/{copyright,kubernetes.md,shim.toml,runtimeclass.yaml} \
	usr/share/doc/squeezy-guest/{copyright,kernel/build.sh}; do
	[ -s "$work/node/$file" ] || die "the packages have no /$file"
done
[[ $(chroot "$work/node" containerd-shim-squeezy-v2 -v) == io.containerd.squeezy.v2* ]] || die "the shim does not run"
[[ $(chroot "$work/node" squeezy-requests --version) == "squeezy-requests "* ]] || die "squeezy-requests does not run"
# As docs/kubernetes.md says for containerd 1.
sed /^version/d "$work/node/usr/share/squeezy/containerd.toml" >>"$work/node/etc/containerd/config.toml"
printf '[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]\n  runtime_type = "io.containerd.runc.v2"\n' >>"$work/node/etc/containerd/config.toml"
chroot "$work/node" containerd --config /etc/containerd/config.toml config dump | grep -q io.containerd.squeezy.v2 ||
	die "containerd does not know the runtime"
printf 'version = 2\n' >"$work/node/etc/containerd/config.toml"
mkdir -p "$work/node/run/squeezy/shim/0123/servers" "$work/node/var/lib/squeezy-shim/layers"
: >"$work/node/var/lib/squeezy-shim/layers/some"
: >"$work/node/run/squeezy/shim/0123/servers/45-0.sock"
! dpkg_in "$work/node" --remove squeezy-shim || die "it is removed while pods run"
grep -q "its VMs run: delete their pods" "$work/dpkg" || die "it does not say why it is not removed"
[ -x "$work/node/usr/bin/containerd-shim-squeezy-v2" ] || die "pods that run have lost their program"
rm "$work/node/run/squeezy/shim/0123/servers/45-0.sock"
dpkg_in "$work/node" --remove squeezy-shim || die "dpkg: $(tail -1 "$work/dpkg")"
[ -e "$work/node/var/lib/squeezy-shim/layers/some" ] || die "a removal takes the layers along"
dpkg_in "$work/node" --purge squeezy-shim squeezy-guest || die "dpkg: $(tail -1 "$work/dpkg")"
files "$work/node" | diff "$work/before" - || die "a purge leaves something"
[ -z "$(find "$work/node" -name '*squeezy*' ! -path '*/dpkg/*')" ] || die "a purge leaves directories"
say "the packages are installed and removed, and after a purge nothing is left"

archive=$("$own/node.sh" "$work" "${packages[@]}")
[ "$(sha256sum <"$archive")" = "$(sha256sum <"$("$own/node.sh" "$work/again" "${packages[@]}")")" ] || die "two images of the same differ"
mkdir "$work/layout"
tar -C "$work/layout" -xf "$archive"
umoci unpack --image "$work/layout:$(dpkg-deb -f "${packages[0]}" Version)" "$work/bundle" >"$work/umoci" 2>&1 ||
	die "the image cannot be unpacked: $(tail -1 "$work/umoci")"
image=$work/bundle/rootfs
make_node "$image/host"
files "$image/host" >"$work/before"
mkdir "$image/proc" "$image/dev"
mknod -m 666 "$image/dev/null" c 1 3
# node ACTION: what a pod of the image does.
node() {
	# shellcheck disable=SC2016 # for the shell inside
	env -i PATH="$PATH" unshare --mount bash -c 'mount --bind /proc "$1/proc" && PATH=/usr/bin:/bin exec /usr/sbin/chroot "$@"' \
		bash "$image" /usr/bin/squeezy-node "$1" >"$work/said" 2>&1 || die "$1: $(tail -1 "$work/said")"
}
node install
grep -q "^this node has io.containerd.squeezy.v2" "$work/said" || die "it said: $(cat "$work/said")"
chroot "$image/host" containerd --config /etc/containerd/config.toml config dump | grep -q io.containerd.squeezy.v2 ||
	die "containerd does not know the runtime"
node remove
files "$image/host" | diff "$work/before" - || die "the image leaves something"
chroot "$image" /bin/sleep 0 || die "the pod could not wait"
say "the image installs the shim, and removes it"
say "all right"
