#!/usr/bin/env bash
# Prints the directory with Debian's runc, extracted from its package.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=../../../scripts/common.sh
. "$(dirname "$0")/../../../scripts/common.sh"

debian_programs runc runc
echo "$programs"
