#!/usr/bin/env bash
# Builds what the experiments with plain processes need: the squeezers and the Java functions.
# usage: bench/src/rigs/process/build.sh
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=../../../../scripts/common.sh
. "$(dirname "$0")/../../../../scripts/common.sh"

"$root/scripts/install-dependencies.sh" squeezers
say "building: the squeezer for the JVM"
make --no-print-directory -C "$root/squeezers/hotspot" OUT="$build/squeezers/hotspot"
say "building: the squeezer for Node"
"$root/squeezers/v8/build.sh"
say "building: the Java functions"
"$root/functions/java/build.sh"
