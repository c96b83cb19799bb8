#!/usr/bin/env bash
# Makes an OCI image of one layer, for the platform that everything here is for. The same layer of the same commit gives
# the same bytes.
# usage: packaging/archive.sh DIRECTORY NAME VERSION LAYER OPTION...; prints the path of the archive in DIRECTORY
#
# LAYER is a tar archive; OPTIONs are those of `umoci config`.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=../scripts/common.sh
. "$(dirname "$0")/../scripts/common.sh"

usage="usage: packaging/archive.sh DIRECTORY NAME VERSION LAYER OPTION..."
directory=${1:?$usage}
name=${2:?$usage}
version=${3:?$usage}
layer=${4:?$usage}
shift 4
need umoci umoci
: "${SOURCE_DATE_EPOCH:=$(git -C "$root" log -1 --format=%ct)}"
created=$(date -u -d "@$SOURCE_DATE_EPOCH" +%Y-%m-%dT%H:%M:%SZ)

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
layout=$work/layout
log=$cache/logs/oci-layout.log
mkdir -p "$directory" "$cache/logs"
{
	umoci init --layout "$layout" &&
		umoci new --image "$layout:$version" &&
		umoci raw add-layer --image "$layout:$version" --history.created "$created" --history.created_by "packaging" "$layer" &&
		umoci config --image "$layout:$version" --created "$created" --history.created "$created" --os linux --architecture amd64 \
			--config.label "org.opencontainers.image.version=$version" \
			--config.label "org.opencontainers.image.title=$name" \
			--config.label "org.opencontainers.image.licenses=(Apache-2.0 OR MIT) AND GPL-2.0-only" "$@" &&
		umoci gc --layout "$layout"
} >"$log" 2>&1 || { show_failure "$log"; die "cannot make the OCI image"; }
archive=$directory/${name}_${version}_amd64.oci.tar
tar --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner --format=gnu -C "$layout" -cf "$archive" .
say "$archive"
