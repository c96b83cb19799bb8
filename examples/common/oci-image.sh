# shellcheck shell=bash
# Makes OCI images without Docker and without a registry, from Debian's packages and directories. Source it.
# The same input gives the same bytes.

# shellcheck source-path=SCRIPTDIR source=../../scripts/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/../../scripts/common.sh"

# Of everything in the images: seconds since 1970.
export SOURCE_DATE_EPOCH=1700000000
# As in guest/image/debian.sh.
suite=bookworm

# debian_layer TAR PACKAGE...: the packages and what they depend on, without a system around them. No
# script of theirs runs, and there is no shell: enough for a program that needs its libraries only.
debian_layer() {
	local tar=$1 base spare
	shift
	need mmdebstrap mmdebstrap
	base=$cache/image/base/extract-$(printf '%s\n' "$suite" "$SOURCE_DATE_EPOCH" "$@" | sha256sum | cut -c1-20).tar
	# shellcheck disable=SC2016 # for mmdebstrap's shell
	spare='rm -rf "$1"/etc/apt "$1"/etc/dpkg "$1"/etc/hostname "$1"/etc/resolv.conf "$1"/var
		cd "$1/usr/share" && rm -rf man locale info lintian bash-completion
		find doc -not -type d -not -name copyright -delete && find doc -type d -empty -delete'
	if [ ! -f "$base" ]; then
		mkdir -p "${base%/*}"
		with_progress "packages of $*, steps" "$cache/image/logs/extract.log" '^(Get|I:)' 0 "cannot get $*" \
			timeout 1200 mmdebstrap --verbose --variant=extract --format=tar --skip=output/dev \
			--include="$(printf '%s\n' "$@" | paste -sd,)" --aptopt='Acquire::Retries "3"' \
			--customize-hook="$spare" "$suite" "$base.new" ${SQUEEZY_MIRROR:+"$SQUEEZY_MIRROR"}
		mv "$base.new" "$base"
	fi
	cp "$base" "$tar"
}

# directory_layer TAR DIRECTORY PLACE: the files of DIRECTORY, as PLACE in the image.
directory_layer() {
	# Modes do not depend on the umask of whoever checked the files out.
	tar --create --file="$1" --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner \
		--mode='u=rwX,go=rX' --transform="s,^\.,.$3," -C "$2" .
}

# image LAYOUT LAYER... -- OPTION...: an OCI layout with one image, `latest`, of these layers, and with
# what these options of umoci-config(1) say of it.
image() {
	local layout=$1 now
	shift
	need umoci umoci
	now=$(date -u -d "@$SOURCE_DATE_EPOCH" +%FT%TZ)
	umoci --log=warn init --layout "$layout"
	umoci --log=warn new --image "$layout"
	while [ "$1" != -- ]; do
		umoci --log=warn raw add-layer --history.created "$now" --image "$layout" "$1"
		shift
	done
	shift
	umoci --log=warn config --created "$now" --history.created "$now" --image "$layout" "$@"
	umoci --log=warn gc --layout "$layout"
}

# oci_archive LAYOUT FILE: what `skopeo copy oci:LAYOUT oci-archive:FILE` makes, less the time of day.
oci_archive() {
	tar --create --file="$2" --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner -C "$1" \
		blobs index.json oci-layout
}

# docker_archive LAYOUT FILE NAME: what `docker save NAME` makes.
docker_archive() {
	need skopeo skopeo
	rm -f "$2"
	skopeo copy --quiet --insecure-policy "oci:$1:latest" "docker-archive:$2:$3"
}
