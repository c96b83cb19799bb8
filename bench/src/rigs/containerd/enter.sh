#!/usr/bin/env bash
# Runs a program beside Debian's containerd with a shim and an image, all in namespaces of their own, which end with it.
# usage: bench/src/rigs/containerd/enter.sh SHIM PROGRAM ARGUMENT...
set -euo pipefail
tests=$(cd "$(dirname "$0")/../../../../host/shim/tests" && pwd)
if [ "${2-}" != inside ]; then
	# shellcheck disable=SC2034 # it is for what is sourced
	containerds=$("$tests/containerds.sh" debian)
fi
# shellcheck source-path=SCRIPTDIR source=../../../../host/shim/tests/cri-common.sh
. "$tests/cri-common.sh"

# The program writes them.
export SQUEEZY_SHIM_SETTINGS=$work/shim.toml
make_layer
make_image "$work/layer"
start_with_image
# It says itself what is wrong.
trap - ERR EXIT
"${@:5}"
