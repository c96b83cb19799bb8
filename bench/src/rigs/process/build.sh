#!/usr/bin/env bash
# Builds what the experiments with plain processes start: the agents and the Java functions.
# usage: bench/src/rigs/process/build.sh
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=../../../../scripts/common.sh
. "$(dirname "$0")/../../../../scripts/common.sh"

"$root/scripts/install-dependencies.sh" reclaim
say "building: the agent for the JVM"
make --no-print-directory -C "$root/reclaim/hotspot" OUT="$build/reclaim/hotspot"
say "building: the agent for Node"
"$root/reclaim/v8/build.sh"
say "building: the Java functions"
"$root/functions/java/build.sh"
