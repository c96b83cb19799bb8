#!/usr/bin/env bash
# Builds the Java functions: build/functions/java.jar, and gson.jar, which it takes along, beside it. The same
# JDK gives the same bytes.
# usage: functions/java/build.sh [--image]
#
# --image makes build/functions/java/ as well, which is what goes into an image: the functions, and the squeezer
# that squeezes a JVM. javac is that of JAVA_HOME or else of PATH, of JDK 17 or later; without any,
# openjdk-17-jdk-headless is installed.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=../../scripts/common.sh
. "$(dirname "$0")/../../scripts/common.sh"

gson_version=2.13.2
gson_sha256=dd0ce1b55a3ed2080cb70f9c655850cda86c206862310009dcb5e5c95265a5e0

case ${1:-} in
'' | --image) ;;
*)
	echo "usage: functions/java/build.sh [--image]" >&2
	exit 2
	;;
esac

gson=$cache/java/gson-$gson_version.jar
if [ ! -f "$gson" ]; then
	say "getting: gson $gson_version"
	maven_jar "com.google.code.gson:gson:$gson_version:jar" "$gson_sha256" "$gson"
fi

if [ -z "${JAVA_HOME:-}" ]; then
	command -v javac >/dev/null || "$root/scripts/install-dependencies.sh" squeezers
	JAVA_HOME=$(dirname "$(dirname "$(realpath "$(command -v javac)")")")
fi
[ -x "$JAVA_HOME/bin/javac" ] || die "$JAVA_HOME has no bin/javac: set JAVA_HOME to a JDK, or unset it"

output=$build/functions
mkdir -p "$output"
work=$(mktemp -d "$output/java.XXXXXX")
trap 'rm -rf "$work"' EXIT
# Gson's classes name annotations that it does not bring along.
"$JAVA_HOME/bin/javac" -Xlint:all,-classfile -Werror --release 11 -g -encoding UTF-8 -cp "$gson" -d "$work/classes" \
	"$root"/functions/java/*/*.java
echo "Class-Path: gson.jar" >"$work/manifest"
(cd "$work/classes" && find . -name '*.class' -printf '%P\n' | LC_ALL=C sort) >"$work/names"
(cd "$work/classes" && "$JAVA_HOME/bin/jar" --create --file ../java.jar --manifest ../manifest \
	--date 2020-01-01T00:00:00Z @../names) ||
	die "cannot make java.jar: jar of JDK 17 or later is needed, JAVA_HOME is $JAVA_HOME"
cp "$gson" "$work/gson.jar"
mv "$work/gson.jar" "$work/java.jar" "$output/"
say "$output/java.jar"

if [ "${1:-}" = --image ]; then
	make --no-print-directory -C "$root/squeezers/hotspot" OUT="$output/squeezer" JAVA_HOME="$JAVA_HOME"
	mkdir -p "$output/java"
	cp "$output/java.jar" "$output/gson.jar" "$output/squeezer/libsqueezer.so" "$root/functions/java/run.sh" \
		"$output/java/"
	say "$output/java"
fi
