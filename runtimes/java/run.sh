#!/bin/sh
# Becomes the JVM that runs an action: run.sh DIRECTORY CLASS.
# MEMORY_LIMIT is the memory of the instance in bytes, which the heap is a part of, as in functions/java/run.sh.
set -eu

limit=${MEMORY_LIMIT:-268435456}
exec java -Xmx$((limit * 7 / 10)) -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Xshare:auto \
	-XX:+UnlockDiagnosticVMOptions -XX:ArchiveRelocationMode=0 -Djava.awt.headless=true \
	-cp /function/launcher.jar:/function/gson.jar squeezy.server.Launcher "$@"
