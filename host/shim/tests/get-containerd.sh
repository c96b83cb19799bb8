#!/usr/bin/env bash
# Prints the directory with Debian's containerd, its shim for runc, and ctr, extracted from its package, which would start
# a daemon if it were installed.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=../../../scripts/common.sh
. "$(dirname "$0")/../../../scripts/common.sh"

debian_programs containerd containerd containerd-shim-runc-v2 ctr
echo "$programs"
