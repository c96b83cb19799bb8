#!/bin/sh
# Builds the guest's initramfs: the agent as /init, squeezyctl, the workloads of the experiments and
# busybox. Prints its path; links it to build/initramfs.cpio. Needs cargo with the target
# x86_64-unknown-linux-musl, cpio and busybox-static.
#
# usage: guest/image/initramfs.sh [trial]
#
# With "trial", programs have cargo's profile of that name, and the link is build/trial/initramfs.cpio.
#
# The archive is kept under the hash of its content, outside the checkout
# (${SQUEEZY_CACHE:-${XDG_CACHE_HOME:-~/.cache}/squeezy}/initramfs).
set -eu

root=$(cd "$(dirname "$0")/../.." && pwd)
cache=${SQUEEZY_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/squeezy}/initramfs
target=x86_64-unknown-linux-musl
busybox=${BUSYBOX:-/usr/bin/busybox}

die() {
	echo "initramfs: $*" >&2
	exit 1
}

profile=${1:-release}
case $profile in
release) build=$root/build ;;
trial) build=$root/build/trial ;;
*) die "usage: guest/image/initramfs.sh [trial]" ;;
esac
command -v cpio >/dev/null || die "cpio is missing: apt-get install cpio"
[ -x "$busybox" ] || die "$busybox is missing: apt-get install busybox-static"
# The guest has no dynamic linker.
if LC_ALL=C ldd "$busybox" 2>&1 | grep -q '=>'; then
	die "$busybox is not static: apt-get install busybox-static"
fi

(cd "$root" && cargo build --quiet --profile "$profile" --target "$target" \
	-p squeezy-agent -p squeezy-workloads) ||
	die "the build of the agent failed (is the target there? rustup target add $target)"
programs=${CARGO_TARGET_DIR:-$root/target}/$target/$profile

staging=$(mktemp -d)
trap 'rm -rf "$staging"' EXIT INT TERM
mkdir -p "$staging/tree/bin" "$staging/tree/dev" "$staging/tree/proc" "$staging/tree/sys" \
	"$staging/tree/run" "$staging/tree/tmp"
install -s -m 755 "$programs/squeezy-agent" "$staging/tree/init"
install -s -m 755 "$programs/squeezyctl" "$staging/tree/bin/squeezyctl"
for source in "$root"/guest/workloads/src/bin/*.rs; do
	name=$(basename "$source" .rs)
	install -s -m 755 "$programs/$name" "$staging/tree/bin/$name"
done
install -m 755 "$busybox" "$staging/tree/bin/busybox"
"$busybox" --list | while read -r applet; do
	[ -e "$staging/tree/bin/$applet" ] || ln -s busybox "$staging/tree/bin/$applet"
done

# The same content gives the same bytes: fixed order, times, owners and inode numbers.
find "$staging/tree" -exec touch -h -d @0 {} +
(cd "$staging/tree" && find . | LC_ALL=C sort |
	cpio --quiet --reproducible --create --format=newc --owner=0:0) >"$staging/initramfs.cpio"

hash=$(sha256sum "$staging/initramfs.cpio" | cut -d ' ' -f 1)
archive=$cache/$hash.cpio
mkdir -p "$cache" "$build"
if [ ! -e "$archive" ]; then
	# Into place in one step, for builds at the same time.
	cp "$staging/initramfs.cpio" "$archive.$$" && mv "$archive.$$" "$archive"
fi
ln -sfn "$archive" "$build/initramfs.cpio"
echo "$archive"
