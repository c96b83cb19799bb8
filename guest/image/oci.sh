# shellcheck shell=bash disable=SC2154,SC2034 # build.sh, which sources this, sets and uses these
# A function's files from an OCI image, an archive or a layout: the work is done by oci/unpack.py.

# Change it when oci/ makes something else of the same image.
oci_recipe=1

# describe: sets key to what the image's content depends on, and pack_options.
describe() {
	local content
	[ -z "$definition" ] || [ -z "$(setting image.packages)$(setting image.app)" ] ||
		die "$definition: [image] has oci, which is the whole image: leave packages and app out"
	if [ -d "$oci" ]; then content=$(tree_hash "$oci"); else content=$(sha256sum <"$oci"); fi
	key=$(echo "$oci_recipe $content" | sha256sum | cut -c1-20)
	# A directory above the files that nobody else may enter: an image may hold programs that run as
	# their owner.
	unpacked=$image_cache/trees/$name-$key
	tree=$unpacked/root
	# Times stay, as bytecode of Python is compared with them, unless they are after 2099.
	pack_options=()
	export SOURCE_DATE_EPOCH=4102444800
}

unpack() {
	# What went wrong is its last line, and make_tree's to say.
	python3 "$root/guest/image/oci/unpack.py" "$oci" "$unpacked" || true
}

# make_tree: the files, with progress.
make_tree() {
	local log=$log_directory/$name.log
	[ "$(id -u)" = 0 ] || die "files of an OCI image keep their owners, which takes root: run this with sudo"
	need skopeo skopeo
	need umoci umoci
	need bwrap bubblewrap
	# Of builds that were killed too: nobody else has the lock.
	rm -rf "$unpacked" "$image_cache"/trees/*.new
	with_progress "image $name: layers, steps" "$log" '^layer ' 0 "cannot unpack $oci" unpack
	[ -d "$tree" ] || die "$(tail -n 1 "$log")"
}

# write_definition FILE: what the host knows of the function: what its function.toml says, then what
# the image says, then what is usual.
write_definition() {
	python3 "$root/guest/image/oci/definition.py" "$unpacked/config.json" "$name" ${definition:+"$definition"} >"$1.new" || {
		rm -f "$1.new"
		exit 1
	}
	mv -T "$1.new" "$1"
}
