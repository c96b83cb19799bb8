#!/bin/sh
# Becomes the Node that runs an action: run.sh DIRECTORY MAIN.
# MEMORY_LIMIT is the memory of the instance in bytes, which the heap's limit follows from.
set -eu

limit=${MEMORY_LIMIT:-268435456}
exec /function/node --max-old-space-size=$((limit * 8 / 10 / 1048576)) /function/launcher.js "$@"
