#!/usr/bin/env bash
# Makes image.tar, an archive as `docker save` makes it: one static program and nothing else.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source-path=SCRIPTDIR source=../common/oci-image.sh
. "$here/../common/oci-image.sh"

command -v go >/dev/null || die "go is missing: run scripts/install-dependencies.sh examples"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/files"
(cd "$here" && CGO_ENABLED=0 GOOS=linux GOARCH=amd64 GOFLAGS='' GOTOOLCHAIN=local GOPROXY=off \
	go build -trimpath -buildvcs=false -ldflags='-s -w -buildid=' -o "$work/files/hello" .)
directory_layer "$work/files.tar" "$work/files" /
image "$work/layout" "$work/files.tar" -- --config.entrypoint /hello --config.exposedports 9000/tcp
docker_archive "$work/layout" "$work/image.tar" localhost/go-hello:latest
mv "$work/image.tar" "$here/image.tar"
say "$here/image.tar"
