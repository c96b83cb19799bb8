# Installs the shim as the image squeezy-node does on a node, which is the test's own namespaces; to be sourced by
# cri-common.sh, with containerd not started yet.
# shellcheck shell=bash
# shellcheck disable=SC2154 # containerd-common.sh has set it

checkout=$here/../../..
for directory in etc usr/lib usr/local; do
	mkdir -p "$work/node/$directory/changed" "$work/node/$directory/work"
	mount -t overlay -o "lowerdir=/$directory,upperdir=$work/node/$directory/changed,workdir=$work/node/$directory/work" \
		overlay "/$directory"
done
mkdir -p /etc/containerd /usr/local/bin
mv "$work/config.toml" /etc/containerd/config.toml
ln -s /etc/containerd/config.toml "$work/config.toml"
cp /etc/containerd/config.toml "$work/config-before.toml"
ln -sf "$(command -v containerd)" /usr/local/bin/containerd
# It is the test that restarts containerd, and no service of systemd.
install "$here/systemctl.sh" /usr/local/bin/systemctl
# Nobody finds the shim there.
rm "$work/bin/containerd-shim-squeezy-v2"

node_image=$work/node-image
install -D "$checkout/packaging/kubernetes/squeezy-node" "$node_image/usr/bin/squeezy-node"
install -D "$shim" "$node_image/usr/bin/containerd-shim-squeezy-v2"
install -D -m 644 "$checkout/build/kernel/release/bzImage" "$node_image/usr/lib/squeezy/kernel/release/bzImage"
install -D -m 644 "$checkout/build/initramfs.cpio" "$node_image/usr/lib/squeezy/initramfs.cpio"
install -D -m 644 "$checkout/packaging/kubernetes/containerd.toml" "$node_image/usr/share/squeezy/containerd.toml"

# squeezy_node install|remove: what a pod of the image does.
squeezy_node() {
	busybox sh "$node_image/usr/bin/squeezy-node" "$1" /
}
