#!/usr/bin/env bash
# Runs one of the Java functions as a plain process. The process becomes the JVM: its id stays.
# usage: functions/java/run.sh NAME [OPTION_OF_JAVA...]
#
# From the environment:
#   PORT            where on 127.0.0.1 it serves POST /init and POST /run (8080)
#   MEMORY_LIMIT    memory of the instance, in bytes (268435456); nothing here enforces it
#   EAGER_GC        1 collects after each run
#   JAVA_COLLECTOR  serial, parallel or g1 (serial)
#   JAVA_HOME       where java is; without it the one in PATH
# JAVA_TOOL_OPTIONS and whatever else the JVM reads from its environment reaches it.
set -euo pipefail

die() {
	printf 'run.sh: %s\n' "$*" >&2
	exit 2
}

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
name=${1:-}
[[ $name =~ ^[a-z]+(-[a-z]+)*$ ]] || die "usage: run.sh NAME [OPTION_OF_JAVA...], with NAME such as hotel-searching"
shift
# hotel-searching is the class HotelSearching.
class=squeezy.functions.$(sed -E 's/(^|-)(.)/\U\2/g' <<<"$name")

# In an image the jar is beside this file.
jar=$here/java.jar
[ -f "$jar" ] || jar=$here/../../build/functions/java.jar
[ -f "$jar" ] || die "there is no java.jar: make it with functions/java/build.sh"
java=${JAVA_HOME:+$JAVA_HOME/bin/}java
command -v "$java" >/dev/null || die "$java is missing: set JAVA_HOME, or install openjdk-17-jre-headless"

limit=${MEMORY_LIMIT:-$((256 << 20))}
[[ $limit =~ ^[1-9][0-9]{7,12}$ ]] || die "MEMORY_LIMIT has to be a number of bytes from 10000000 on, not '$limit'"
case ${JAVA_COLLECTOR:-serial} in
serial) collector=-XX:+UseSerialGC ;;
parallel) collector=-XX:+UseParallelGC ;;
g1) collector=-XX:+UseG1GC ;;
*) die "JAVA_COLLECTOR has to be serial, parallel or g1, not '$JAVA_COLLECTOR'" ;;
esac

# As AWS Lambda sets them. The heap begins as large as HotSpot makes it on a machine of that memory: a 64th of
# it, and 8 MiB at least. Without a display. The archive of class data stays at the address that it was made
# for: where the JVM moves it (by default from 17 on), nearly all of its pages are the instance's own, 10 MiB.
initial=$((limit / 64 < 8 << 20 ? 8 << 20 : limit / 64))
exec "$java" -Xmx$((limit * 85 / 100)) -Xms$initial "$collector" -XX:TieredStopAtLevel=1 -Xshare:auto \
	-XX:+IgnoreUnrecognizedVMOptions -XX:+UnlockDiagnosticVMOptions -XX:ArchiveRelocationMode=0 \
	-Djava.awt.headless=true "$@" -cp "$jar" squeezy.server.Server "$class"
