#!/usr/bin/env bash
# Runs Docker's registry, extracted from Debian's package, which would start a server if it were installed.
# usage: host/squeezy/tests/registry/run.sh ARGUMENT...
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=../../../../scripts/common.sh
. "$(dirname "$0")/../../../../scripts/common.sh"

debian_programs docker-registry docker-registry
exec "$programs/docker-registry" "$@"
