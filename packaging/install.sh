#!/usr/bin/env bash
# Installs into TREE, an empty directory or the root of a system, what README.md lists for a package; from a checkout in
# which it has been built.
# usage: packaging/install.sh squeezy|squeezy-guest|squeezy-shim TREE [IMAGE...]
#
# IMAGEs are names of functions' images to install besides.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=../scripts/common.sh
. "$(dirname "$0")/../scripts/common.sh"

own=$root/packaging
usage="usage: packaging/install.sh squeezy|squeezy-guest|squeezy-shim TREE [IMAGE...]"
package=${1:?$usage}
tree=${2:?$usage}
shift 2
programs=${SQUEEZY_PROGRAMS:-$root/target/release}
# Those that run in images without a C library.
static_programs=${SQUEEZY_STATIC_PROGRAMS:-$root/target/x86_64-unknown-linux-musl/release}
library=$tree/usr/lib/squeezy
documents=$tree/usr/share/doc/$package

# place MODE SOURCE TARGET
place() {
	[ -e "$2" ] || die "${2#"$root/"} is missing: make kernel image programs"
	install -D -m "$1" "$2" "$3"
}
# place_program NAME [DIRECTORY]
place_program() {
	place 755 "${2:-$programs}/$1" "$tree/usr/bin/$1"
	strip "$tree/usr/bin/$1"
}
# place_documents FILE...
place_documents() {
	local file
	for file in "$@"; do
		place 644 "$root/$file" "$documents/$(basename "$file")"
	done
	# What is in docs/ is beside the others here, so that is where links lead.
	for file in "$@"; do
		case $file in docs/*) sed -i "s#]($file#](${file#docs/}#g" "$documents"/*.md ;; esac
	done
}

install_guest() {
	local file
	place 644 "$build/kernel/release/bzImage" "$library/kernel/release/bzImage"
	place 644 "$build/initramfs.cpio" "$library/initramfs.cpio"
	# The kernel's licence asks for its source: what it is built from besides Debian's package, and how.
	(cd "$root/guest/kernel" && find LICENSE README.md build.sh config hooks src -type f) | while read -r file; do
		place 644 "$root/guest/kernel/$file" "$documents/kernel/$file"
	done
	place 644 "$build/kernel/release/config" "$documents/kernel/config/built"
}

install_squeezy() {
	local name file completions
	place_program squeezy
	place_program squeezy-bench
	mkdir -p "$library/images"
	for name in "$@"; do
		place 644 "$build/images/$name.erofs" "$library/images/$name.erofs"
		place 644 "$build/images/$name.toml" "$library/images/$name.toml"
	done

	# For images that users make. The link is where the scripts put them in a checkout.
	for file in build.sh debian.sh oci.sh initramfs.sh; do
		place 755 "$root/guest/image/$file" "$library/guest/image/$file"
	done
	place 644 "$root/guest/image/keystore.py" "$library/guest/image/keystore.py"
	(cd "$root/guest/image/oci" && find . -name '*.py' -not -path '*/__pycache__/*') | while read -r file; do
		place 644 "$root/guest/image/oci/$file" "$library/guest/image/oci/$file"
	done
	place 644 "$root/scripts/common.sh" "$library/scripts/common.sh"
	ln -sfn . "$library/build"

	place 644 "$own/squeezy.service" "$tree/usr/lib/systemd/system/squeezy.service"
	place 644 "$own/squeezy.sysusers" "$tree/usr/lib/sysusers.d/squeezy.conf"
	place 644 "$own/squeezy.toml" "$tree/etc/squeezy/squeezy.toml"
	completions=$tree/usr/share/bash-completion/completions/squeezy
	mkdir -p "$(dirname "$completions")"
	"$tree/usr/bin/squeezy" completion bash >"$completions"
	chmod 644 "$completions"

	place_documents README.md CHANGELOG.md SECURITY.md docs/{operations,functions,design,threat-model,abi}.md \
		docs/{tutorial,comparison}.md docs/tutorial.png
	for file in alerts.yml dashboard.json; do
		place 644 "$root/monitoring/$file" "$documents/monitoring/$file"
	done
}

install_shim() {
	place_program containerd-shim-squeezy-v2
	place_program squeezy-requests "$static_programs"
	# Not where containerd reads it by itself: version 1 of it would do without what its configuration says beside.
	place 644 "$own/kubernetes/containerd.toml" "$tree/usr/share/squeezy/containerd.toml"
	place_documents CHANGELOG.md docs/{kubernetes,cri}.md packaging/kubernetes/runtimeclass.yaml host/shim/src/shim.toml
}

case $package in
squeezy-guest) install_guest ;;
squeezy) install_squeezy "$@" ;;
squeezy-shim) install_shim ;;
*) die "$usage" ;;
esac
cat "$own/debian/$package/copyright" "$own/debian/licences" >"$documents/copyright"
chmod 644 "$documents/copyright"
