#!/usr/bin/env bash
# Builds the guest kernel: Debian's linux-source-6.12, the files of src/ and the hooks of hooks/6.12/.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=../../scripts/common.sh
. "$(dirname "$0")/../../scripts/common.sh"

usage() {
	cat <<'TEXT'
usage: guest/kernel/build.sh VARIANT [MAKE TARGET...]
       guest/kernel/build.sh --source

  release   the kernel that instances run on
  debug     release with PROVE_LOCKING, DEBUG_VM, KASAN, KUnit and fault injection
  benchmark release with a benchmark of the page allocator and other delays of free page reporting, for the experiments
            "allocator" and "build"
  off       release without CONFIG_SQUEEZY, on the hooked tree
  stock     the configuration of "off" on the unpatched tree
  numa      the unpatched tree with NUMA, for the mechanism "numa"

The image goes to build/kernel/VARIANT/bzImage, through a cache in ${SQUEEZY_CACHE:-~/.cache/squeezy}
that is keyed by everything it was built from. With MAKE TARGETs (mm/squeezy/ for instance) only these
are built, and no image. Each variant keeps its objects, so that a changed file takes seconds.
--source prints where the unpacked source of Debian is.
TEXT
}

# The Debian revision of 6.12 that hooks and tests were last checked with.
tested_version=6.12.117
series=6.12
package=linux-source-$series
# Change it when this script builds something else from the same input.
recipe=1

kernel=$root/guest/kernel
hooks=$kernel/hooks/$series
kernel_cache=$cache/kernel

case ${1:-} in
release | debug | benchmark | off) patched=yes ;;
stock | numa | --source) patched=no ;;
-h | --help) usage; exit 0 ;;
*) usage >&2; exit 2 ;;
esac
variant=$1
shift
targets=("$@")
case $variant in
stock) fragment=$kernel/config/off.config ;;
*) fragment=$kernel/config/$variant.config ;;
esac
objects=$kernel_cache/objects/$variant
log=$kernel_cache/logs/$variant.log

# find_source: sets source_version and source_archive. Debian's package where it is installed, else
# downloaded into the cache, which needs no root.
find_source() {
	local deb directory=$kernel_cache/package
	source_archive=/usr/src/$package.tar.xz
	source_version=$(dpkg-query -W -f '${Version}' "$package" 2>/dev/null || true)
	if [ -z "$source_version" ] || [ ! -f "$source_archive" ]; then
		source_archive=$directory/usr/src/$package.tar.xz
		if [ ! -f "$source_archive" ]; then
			say "kernel: downloading $package"
			rm -rf "$directory" && mkdir -p "$directory"
			(cd "$directory" && apt-get download "$package") >"$directory/log" 2>&1 ||
				die "cannot download $package (see $directory/log): run apt-get update as root, or install it"
			deb=$(find "$directory" -name '*.deb')
			dpkg -x "$deb" "$directory"
			dpkg-deb -f "$deb" Version >"$directory/version"
			rm -f "$deb"
		fi
		source_version=$(cat "$directory/version")
	fi
	case $source_version in
	$tested_version-*) ;;
	$series.*) say "kernel: Linux $source_version; the hooks were last checked with $tested_version, trying" ;;
	*) die "$package is $source_version; the hooks are for $series" ;;
	esac
}

# unpack_source: sets pristine, the tree as Debian ships it.
unpack_source() {
	pristine=$kernel_cache/source/$source_version
	[ -d "$pristine" ] && return
	say "kernel: unpacking Linux $source_version"
	rm -rf "$pristine.new"
	mkdir -p "$pristine.new"
	tar -xf "$source_archive" -C "$pristine.new" --strip-components=1 || die "cannot unpack $source_archive"
	mv "$pristine.new" "$pristine"
}

# hooked_files: the paths that the series touches.
hooked_files() {
	sed -n 's|^+++ b/\([^\t]*\).*|\1|p' "${patches[@]}" | sort -u
}

# update_hooked_tree: sets tree, the pristine one with src/ and the hooks. Only files whose content
# changed are written, so that make rebuilds only what depends on them.
update_hooked_tree() {
	local overlay=$kernel_cache/overlay patch file
	tree=$kernel_cache/hooked/$source_version
	rm -rf "$overlay" && mkdir -p "$overlay"
	if [ ${#patches[@]} -gt 0 ]; then
		hooked_files | rsync -a --ignore-missing-args --files-from=- "$pristine/" "$overlay/"
		for patch in "${patches[@]}"; do
			patch -d "$overlay" -p1 -F0 -s --no-backup-if-mismatch <"$patch" >"$kernel_cache/patch.log" 2>&1 || {
				cat "$kernel_cache/patch.log" >&2
				die "${patch#"$root/"} does not apply to Linux $source_version: bring it up to date"
			}
		done
	fi
	(cd "$kernel/src" && find . -type f) | while read -r file; do
		if [ -e "$overlay/$file" ] || [ -e "$pristine/$file" ]; then
			die "src/${file#./} is a file of Linux: whole new files go there, changes go to hooks/$series/"
		fi
	done
	rsync -a "$kernel/src/" "$overlay/"
	if [ ! -d "$tree" ]; then
		mkdir -p "$kernel_cache/hooked"
		rm -rf "$tree.new"
		# Hard links: neither rsync nor the copies below write into an existing file.
		cp -al "$pristine" "$tree.new" && mv "$tree.new" "$tree"
	fi
	rsync -rlpc --no-times "$overlay/" "$tree/"
	# What an earlier state had and this one has not goes back to what Debian ships.
	(cd "$overlay" && find . -type f | sort) >"$tree.files.new"
	if [ -f "$tree.files" ]; then
		comm -23 "$tree.files" "$tree.files.new" | while read -r file; do
			rm -f "${tree:?}/$file"
			[ ! -e "$pristine/$file" ] || cp --no-preserve=timestamps "$pristine/$file" "$tree/$file"
		done
	fi
	mv "$tree.files.new" "$tree.files"
}

# The first build of a variant finds nothing in ccache, for others have other headers, and what it would leave there is
# hardly ever found, for the objects are kept. To be asked and filled, ccache takes a fifth of the time of each object.
[ -f "$objects/vmlinux.o" ] || export CCACHE_DISABLE=1

# kernel_make ARGUMENT...: make with everything fixed that would otherwise differ between machines.
kernel_make() {
	local compiler=gcc
	command -v ccache >/dev/null && compiler="ccache gcc"
	CCACHE_DIR=$cache/ccache CCACHE_MAXSIZE=3G \
		KBUILD_BUILD_TIMESTAMP='@0' KBUILD_BUILD_USER=squeezy KBUILD_BUILD_HOST=squeezy KBUILD_BUILD_VERSION=1 \
		make -C "$tree" O="$objects" CC="$compiler" ARCH=x86 LOCALVERSION= "$@"
}

# configure: tinyconfig, config/guest.config and the variant's fragment, each option checked.
configure() {
	local merged=$objects/.config.new asked=$objects/.asked want
	# Of which it differs in a handful of objects.
	if [ "$variant" = benchmark ] && [ ! -d "$objects" ] && [ -f "$kernel_cache/objects/release/.config" ]; then
		cp -a "$kernel_cache/objects/release" "$objects"
		rm -f "$asked"
	fi
	mkdir -p "$objects"
	cat "$kernel/config/guest.config" "$fragment" >"$asked.new"
	# A new option of src/ changes the outcome too, so its Kconfig files count.
	find "$kernel/src" -name 'Kconfig*' -exec cat {} + >>"$asked.new"
	printf '# %s %s\n' "$source_version" "$(hooks_hash)" >>"$asked.new"
	if [ -f "$objects/.config" ] && cmp -s "$asked" "$asked.new"; then return; fi
	{
		kernel_make KCONFIG_CONFIG="$merged" tinyconfig &&
			"$tree/scripts/kconfig/merge_config.sh" -m -O "$objects" "$merged" \
				"$kernel/config/guest.config" "$fragment" &&
			mv "$objects/.config" "$merged.merged" &&
			mv "$merged.merged" "$merged" &&
			kernel_make KCONFIG_CONFIG="$merged" olddefconfig
	} >"$log.config" 2>&1 || {
		show_failure "$log.config"
		die "cannot configure the $variant kernel"
	}
	want=$(unmet_options "$merged")
	[ -z "$want" ] || die "options that did not take (their dependencies are not met): $(echo "$want" | tr '\n' ' ')"
	cmp -s "$merged" "$objects/.config" || mv "$merged" "$objects/.config"
	rm -f "$merged" "$merged.old"
	mv "$asked.new" "$asked"
}

# unmet_options CONFIG: what the fragments ask for and CONFIG has not; of two requests the later counts.
unmet_options() {
	awk -F= '
		FNR == 1 { file++ }
		/^CONFIG_/ { value = substr($0, length($1) + 2); if (file < 3) asked[$1] = value; else got[$1] = value }
		END {
			for (option in asked)
				if ((option in got ? got[option] : "n") != asked[option]) print option "=" asked[option]
		}' "$kernel/config/guest.config" "$fragment" "$1" | sort
}

hooks_hash() {
	if [ "$patched" = yes ]; then tree_hash "$hooks"; else echo none; fi
}

# content_key: everything the image depends on.
content_key() {
	{
		echo "$recipe $variant $source_version $patched"
		gcc --version | head -1
		ld --version | head -1
		cat "$kernel/config/guest.config" "$fragment"
		hooks_hash
		if [ "$patched" = yes ]; then tree_hash "$kernel/src"; fi
	} | sha256sum | cut -c1-20
}

# link_image: build/kernel/VARIANT/ shows what the cache has.
link_image() {
	local file
	touch "$image"
	mkdir -p "$build/kernel/$variant"
	for file in bzImage vmlinux System.map config; do
		ln -sfn "$image/$file" "$build/kernel/$variant/$file"
	done
}

# compile TARGET...: with the number of objects of a full build as the measure, where it is one.
compile() {
	local expected=0 start=$SECONDS fresh=no
	if [ ${#targets[@]} -eq 0 ] && [ ! -f "$objects/vmlinux.o" ]; then
		[ -d "$objects/mm" ] || fresh=yes
		expected=$(cat "$kernel_cache/count-$variant" 2>/dev/null || echo 1874)
	fi
	with_progress "kernel $variant: objects" "$log" '^  (CC|AS|AR|LD) ' "$expected" \
		"the $variant kernel does not build" kernel_make -j"$(nproc)" "$@"
	grep -E 'warning:' "$log" | sort -u | head -20 >&2 || true
	compiled=$(grep -cE '^  (CC|AS|AR|LD) ' "$log" || true)
	if [ $fresh = yes ] && [ -f "$objects/vmlinux" ]; then echo "$compiled" >"$kernel_cache/count-$variant"; fi
	say "kernel $variant: $compiled objects in $((SECONDS - start)) s"
}

for tool in gcc:gcc make:make flex:flex bison:bison bc:bc rsync:rsync patch:patch xz:xz-utils cpio:cpio; do
	need "${tool%%:*}" "${tool#*:}"
done
mkdir -p "$kernel_cache/logs" "$kernel_cache/images"
shopt -s nullglob
patches=("$hooks"/*.patch)
shopt -u nullglob

find_source
if [ "$variant" = --source ]; then
	pristine=$kernel_cache/source/$source_version
	if [ ! -d "$pristine" ]; then
		hold_lock kernel
		unpack_source
	fi
	say "$pristine"
	exit 0
fi
image=$kernel_cache/images/$variant-$(content_key)
if [ ${#targets[@]} -eq 0 ] && [ -f "$image/bzImage" ]; then
	link_image
	say "kernel $variant: up to date"
	exit 0
fi

# One at a time: two at once on the same trees would mix, and each uses every processor.
hold_lock kernel
unpack_source
tree=$pristine
[ "$patched" = no ] || update_hooked_tree
configure
if [ ${#targets[@]} -gt 0 ]; then
	compile "${targets[@]}"
	exit 0
fi
compile bzImage
mkdir -p "$image.new"
cp "$objects/arch/x86/boot/bzImage" "$objects/vmlinux" "$objects/System.map" "$image.new/"
cp "$objects/.config" "$image.new/config"
rm -rf "$image" && mv "$image.new" "$image"
keep_newest "$kernel_cache/images" 12
link_image
