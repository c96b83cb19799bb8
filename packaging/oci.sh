#!/usr/bin/env bash
# Builds an OCI image of Debian with Squeezy's packages in it, of which the first says the version. As root. The
# same packages, Debian's included, give the same bytes.
# usage: packaging/oci.sh DIRECTORY PACKAGE...; prints the path of the archive in DIRECTORY
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=../scripts/common.sh
. "$(dirname "$0")/../scripts/common.sh"

directory=${1:?usage: packaging/oci.sh DIRECTORY PACKAGE...}
: "${2:?usage: packaging/oci.sh DIRECTORY PACKAGE...}"
shift
[ "$(id -u)" = 0 ] || die "run this as root: files in the image keep their owners"
need mmdebstrap mmdebstrap
: "${SOURCE_DATE_EPOCH:=$(git -C "$root" log -1 --format=%ct)}"
export SOURCE_DATE_EPOCH
version=$(dpkg-deb -f "$1" Version)

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/packages"
cp "$@" "$work/packages"

# What the daemon needs, and from bubblewrap on what it pulls images with.
needs=qemu-system-x86,seabios,init-system-helpers,ca-certificates,systemd,bubblewrap,skopeo,umoci,erofs-utils,python3

# The hooks are for the shell of mmdebstrap, with the tree as $1. Licences and what they ask for stay in /usr/share/doc.
# shellcheck disable=SC2016
make_layer() {
	mmdebstrap --variant=essential --include="$needs" --aptopt='APT::Install-Recommends "false"' \
		--dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/locale/*' \
		--customize-hook="cp -r '$work/packages' \"\$1/packages\"" \
		--customize-hook='chroot "$1" dpkg --install --recursive /packages && rm -r "$1/packages"' \
		--customize-hook='sed -i "s/^listen = .*/listen = \"0.0.0.0:3233\"/" "$1/etc/squeezy/squeezy.toml"' \
		--customize-hook='chroot "$1" install -d -m 700 -o squeezy -g squeezy /var/lib/squeezy' \
		--customize-hook='rm -rf "$1"/var/log/* "$1"/var/cache/* "$1"/var/lib/apt/lists/* "$1"/etc/machine-id' \
		bookworm "$work/layer.tar"
}

with_progress "OCI image: packages" "$cache/logs/oci.log" '^Setting up' 0 "cannot make the image's files" make_layer
"$root/packaging/archive.sh" "$directory" squeezy "$version" "$work/layer.tar" \
	--config.user squeezy --config.exposedports 3233/tcp \
	--config.volume /var/lib/squeezy --config.workingdir /var/lib/squeezy --config.env PATH=/usr/bin:/bin \
	--config.entrypoint /usr/bin/squeezy --config.cmd serve --config.cmd=--config --config.cmd=/etc/squeezy/squeezy.toml
