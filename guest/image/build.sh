#!/usr/bin/env bash
# Makes the root file system of a function's instances, as one read-only erofs image that all instances
# of a VM share, from Debian's packages (debian.sh) or from an OCI image (oci.sh).
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=../../scripts/common.sh
. "$(dirname "$0")/../../scripts/common.sh"

usage() {
	cat <<'TEXT'
usage: guest/image/build.sh [--image | --tree | --reference] FUNCTION

FUNCTION is a directory with a function.toml, or an OCI image: an archive, as `docker save` and
`skopeo copy ... oci-archive:` make it, or a layout directory. Makes build/images/NAME.erofs as [image]
says (docs/functions.md), and NAME.toml beside it, which has all that the host has to know. NAME is what
function.toml says; without one it is the image's file name without .tar.

The way goes through a cache in ${SQUEEZY_CACHE:-~/.cache/squeezy} that is keyed by all that this depends
on. --image prints the path of the image as the last line, --tree the directory that it was packed from.
--reference replaces nobody's image: it makes build/images/sha256/HEX/image.erofs and image.toml instead,
of which the latest dozen are kept, and prints NAME@sha256:HEX as the last line.
SQUEEZY_MIRROR names another Debian mirror.
TEXT
}

image_cache=$cache/image
log_directory=$image_cache/logs

show=
case ${1:-} in
--image | --tree | --reference)
	show=${1#--}
	shift
	;;
esac
case ${1:-} in
-h | --help) usage; exit 0 ;;
'') usage >&2; exit 2 ;;
esac

# setting KEY: one value of function.toml, lists as lines; KEY is dotted.
setting() {
	python3 - "$definition" "$1" <<'PYTHON'
import sys, tomllib
path, key = sys.argv[1:]
try:
    with open(path, "rb") as file:
        value = tomllib.load(file)
except tomllib.TOMLDecodeError as error:
    sys.exit(f"{path}: {error}")
for part in key.split("."):
    value = value.get(part, "") if isinstance(value, dict) else ""
if value:
    print("\n".join(value) if isinstance(value, list) else value)
PYTHON
}

pack() {
	# A fixed id, besides times: the same tree gives the same image.
	mkfs.erofs -zlz4hc -U 00000000-0000-0000-0000-000000000000 "${pack_options[@]}" "$1" "$tree" || {
		rm -f "$1"
		return 1
	}
}

# reference: the image and its definition, under what `sha256sum image.erofs image.toml | sha256sum` says.
reference() {
	local place=$build/images/sha256 aside digest
	mkdir -p "$place"
	# Of builds that were killed.
	find "$place" -mindepth 1 -maxdepth 1 -name '*.new' -mmin +60 -exec rm -rf {} +
	aside=$(mktemp -d "$place/XXXXXXXX.new")
	# shellcheck disable=SC2064 # the directory, now
	trap "rm -rf '$aside'" EXIT
	chmod 755 "$aside"
	write_definition "$aside/definition"
	cp -L --no-preserve=mode "$aside/definition" "$aside/image.toml"
	rm "$aside/definition"
	# The cache replaces an image, and never writes to one.
	ln "$image" "$aside/image.erofs" 2>/dev/null || cp "$image" "$aside/image.erofs"
	digest=$(cd "$aside" && sha256sum image.erofs image.toml | sha256sum | cut -c1-64)
	# Where it is already, it is the same.
	mv -T "$aside" "$place/$digest" 2>/dev/null || [ -d "$place/$digest" ] || die "cannot make $place/$digest"
	touch "$place/$digest"
	keep_newest "$place" 12
	# shellcheck disable=SC2031 # tree_hash has one of its own
	say "$name@sha256:$digest"
}

need python3 python3
function_directory=${1%/}
definition=
oci=
if [ -f "$function_directory/function.toml" ]; then
	definition=$function_directory/function.toml
	name=$(setting name)
	oci=$(setting image.oci)
	case $oci in '' | /*) ;; *) oci=$function_directory/$oci ;; esac
	[ -z "$oci" ] || [ -f "$oci" ] || [ -d "$oci" ] || die "$oci is not there, though [image] names it"
	where="$definition: name"
elif [ -f "$function_directory" ] || [ -f "$function_directory/oci-layout" ]; then
	oci=$function_directory
	name=$(basename "$oci" .tar)
	where="$oci: without a function.toml the image's file name is the function's, which"
else
	die "$function_directory is neither a directory with a function.toml nor an OCI image"
fi
[[ $name =~ ^[a-z0-9][a-z0-9-]{0,62}$ ]] || die "$where has to be 1 to 63 of a-z, 0-9 and '-', not '$name'"

# Each has: describe, which sets key, tree and pack_options; make_tree; write_definition.
if [ -n "$oci" ]; then
	# shellcheck source-path=SCRIPTDIR source=oci.sh
	. "$root/guest/image/oci.sh"
else
	# shellcheck source-path=SCRIPTDIR source=debian.sh
	. "$root/guest/image/debian.sh"
fi
describe
image=$image_cache/erofs/$name-$key.erofs

if [ ! -f "$image" ] || [ ! -d "$tree" ]; then
	need mkfs.erofs erofs-utils
	hold_lock image
	mkdir -p "$image_cache"/{base,erofs,trees} "$log_directory"
	make_tree
	with_progress "image $name: packing" "$log_directory/$name-pack.log" 'Processing' 0 \
		"cannot pack the image of $name" pack "$image.new"
	mv "$image.new" "$image"
	keep_newest "$image_cache/erofs" 20
	keep_newest "$image_cache/trees" 12
	say "image $name: $(du -h "$image" | cut -f1)"
else
	touch "$image"
	[ -n "$show" ] || say "image $name: up to date"
fi
if [ "$show" = reference ]; then
	reference
	exit
fi
mkdir -p "$build/images"
write_definition "$build/images/$name.toml"
ln -sfn "$image" "$build/images/$name.erofs"
case $show in
image) say "$build/images/$name.erofs" ;;
tree) say "$tree" ;;
esac
