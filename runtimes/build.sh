#!/usr/bin/env bash
# Makes the images of runtimes, which run code that comes with an action: build/images/runtime-NAME.erofs.
# usage: runtimes/build.sh [NAME...]      (python, node, native, java; without one: all)
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=../scripts/common.sh
. "$(dirname "$0")/../scripts/common.sh"

here=$root/runtimes
target=x86_64-unknown-linux-musl
parts=$build/runtimes

# server: the program that every runtime has, without any library.
server() {
	mkdir -p "$parts/server"
	(cd "$root" && cargo build --quiet --release --target $target -p squeezy-runtime) ||
		die "cannot build the server of runtimes (is the target there? rustup target add $target)"
	install -s -m 755 "${CARGO_TARGET_DIR:-$root/target}/$target/release/squeezy-runtime" "$parts/server/"
}

# node: the Node that the squeezer for Node is tested with.
node() {
	local home
	home=$(python3 "$root/squeezers/v8/tests/nodes.py" "$cache/node" 20)
	mkdir -p "$parts/node"
	install -s -m 755 "${home#20=}/bin/node" "$parts/node/"
}

# java: the launcher, with the class of the Java functions that finds and calls an action.
java() {
	local work functions=$root/functions/java/server
	"$root/functions/java/build.sh" >/dev/null
	mkdir -p "$parts/java"
	work=$(mktemp -d "$parts/java.XXXXXX")
	"${JAVA_HOME:+$JAVA_HOME/bin/}javac" -Xlint:all,-classfile -Werror --release 11 -g -encoding UTF-8 \
		-cp "$build/functions/gson.jar" -d "$work" "$here"/java/launcher/*.java "$functions/Action.java" "$functions/Refused.java"
	(cd "$work" && find . -name '*.class' -printf '%P\n' | LC_ALL=C sort) >"$work/names"
	(cd "$work" && "${JAVA_HOME:+$JAVA_HOME/bin/}jar" --create --file "$parts/java/launcher.jar" \
		--date 2020-01-01T00:00:00Z @names)
	rm -rf "$work"
	cp "$build/functions/gson.jar" "$here/java/run.sh" "$parts/java/"
}

names=("$@")
[ ${#names[@]} -gt 0 ] || names=(python node native java)
for name in "${names[@]}"; do
	[ -f "$here/$name/function.toml" ] || die "there is no runtime $name: $here has no $name/function.toml"
done
server
for name in "${names[@]}"; do
	case $name in node | java) "$name" ;; esac
	"$root/guest/image/build.sh" "$here/$name"
done
