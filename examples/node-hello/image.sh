#!/usr/bin/env bash
# Makes image.tar, an OCI archive: Node of Debian 12 and app/.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source-path=SCRIPTDIR source=../common/oci-image.sh
. "$here/../common/oci-image.sh"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
debian_layer "$work/node.tar" nodejs
directory_layer "$work/app.tar" "$here/app" /app
# Without an exposed port: 8080.
image "$work/layout" "$work/node.tar" "$work/app.tar" -- --config.entrypoint node --config.cmd server.js \
	--config.workingdir /app --config.env NODE_ENV=production
oci_archive "$work/layout" "$work/image.tar"
mv "$work/image.tar" "$here/image.tar"
say "$here/image.tar"
