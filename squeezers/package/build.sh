#!/usr/bin/env bash
# Makes one archive with the squeezers and their client, for machines that have nothing else of Squeezy.
# usage: squeezers/package/build.sh [DIRECTORY]     (build/squeezers)
#
# Each squeezer's folder in it can be copied alone. What is built runs on systems with a C library at least as new as
# the one here; the client is static.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=../../scripts/common.sh
. "$(dirname "$0")/../../scripts/common.sh"

target=x86_64-unknown-linux-musl
directory=${1:-$build/squeezers}
version=$(sed -n 's/^version = "\(.*\)"/\1/p' "$root/Cargo.toml" | head -n 1)
name=squeezer-$version-x86_64

need gcc gcc
need g++ g++
need make make
need javac openjdk-17-jdk-headless
need musl-gcc musl-tools
command -v cargo >/dev/null || die "cargo is missing: run scripts/install-dependencies.sh, or see https://rustup.rs"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
tree=$work/$name

make --no-print-directory --silent -C "$root/squeezers/hotspot" OUT="$work/hotspot"
install -D -m 755 "$work/hotspot/libsqueezer.so" "$tree/hotspot/libsqueezer.so"

"$root/squeezers/v8/build.sh" "$tree/v8" >/dev/null

make --no-print-directory --silent -C "$root/squeezers/cpython"
mkdir -p "$tree/cpython/preload/squeezer"
install -m 644 "$root"/squeezers/cpython/preload/*.p* "$tree/cpython/preload/"
install -m 644 "$root"/squeezers/cpython/preload/squeezer/*.{py,so} "$tree/cpython/preload/squeezer/"

cargo build --quiet --locked --release --target "$target" --manifest-path "$root/Cargo.toml" -p squeezer
install -D -s -m 755 "${CARGO_TARGET_DIR:-$root/target}/$target/release/squeezer" "$tree/client/squeezer"

install -m 644 "$root/squeezers/README.md" "$root"/LICENSE-* "$tree/"
for part in hotspot v8 cpython client; do
	install -m 644 "$root/squeezers/$part/README.md" "$tree/$part/"
	[ "$part" = client ] || install -m 644 "$root"/LICENSE-* "$tree/$part/"
done

mkdir -p "$directory"
# The same content is the same archive.
tar -C "$work" --sort=name --owner=0 --group=0 --numeric-owner --mtime='1970-01-01 00:00Z' -cf - "$name" |
	gzip -n >"$directory/$name.tar.gz.new"
mv "$directory/$name.tar.gz.new" "$directory/$name.tar.gz"
say "squeeze: $directory/$name.tar.gz"
