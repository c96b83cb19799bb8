#!/usr/bin/env bash
# Makes an example's OCI image and its function image, starts its server from that, and tests its answers.
# usage: examples/test.sh EXAMPLE_DIRECTORY
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=../scripts/common.sh
. "$(dirname "$0")/../scripts/common.sh"

example=${1:?usage: examples/test.sh EXAMPLE_DIRECTORY}
"$example/image.sh"
image=$("$root/guest/image/build.sh" --image "$example" | tail -1)
tree=$("$root/guest/image/build.sh" --tree "$example" | tail -1)
# A network of its own: whatever port the server wants is free there, and nobody else's.
EXAMPLE_TREE=$tree EXAMPLE_DEFINITION=${image%.erofs}.toml PYTHONPATH=$root/examples/common PYTHONDONTWRITEBYTECODE=1 \
	bwrap --die-with-parent --dev-bind / / --unshare-net --unshare-pid --proc /proc \
	timeout 900 python3 "$root/scripts/run-unittest.py" discover -s "$example/tests"
