#!/usr/bin/env bash
# Makes one archive with the agents and their client, for machines that have nothing else of Squeezy.
# usage: reclaim/package/build.sh [DIRECTORY]     (build/reclaim)
#
# Each agent's folder in it can be copied alone. What is built runs on systems with a C library at least as new as
# the one here; the client is static.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=../../scripts/common.sh
. "$(dirname "$0")/../../scripts/common.sh"

target=x86_64-unknown-linux-musl
directory=${1:-$build/reclaim}
version=$(sed -n 's/^version = "\(.*\)"/\1/p' "$root/Cargo.toml" | head -n 1)
name=squeezy-reclaim-$version-x86_64

need gcc gcc
need g++ g++
need make make
need javac openjdk-17-jdk-headless
need musl-gcc musl-tools
command -v cargo >/dev/null || die "cargo is missing: run scripts/install-dependencies.sh, or see https://rustup.rs"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
tree=$work/$name

make --no-print-directory --silent -C "$root/reclaim/hotspot" OUT="$work/hotspot"
install -D -m 755 "$work/hotspot/libsqueezy_reclaim.so" "$tree/hotspot/libsqueezy_reclaim.so"

"$root/reclaim/v8/build.sh" "$tree/v8" >/dev/null

make --no-print-directory --silent -C "$root/reclaim/cpython"
mkdir -p "$tree/cpython/preload/squeezy_reclaim"
install -m 644 "$root"/reclaim/cpython/preload/*.p* "$tree/cpython/preload/"
install -m 644 "$root"/reclaim/cpython/preload/squeezy_reclaim/*.{py,so} "$tree/cpython/preload/squeezy_reclaim/"

cargo build --quiet --locked --release --target "$target" --manifest-path "$root/Cargo.toml" -p squeezy-reclaim
install -D -s -m 755 "${CARGO_TARGET_DIR:-$root/target}/$target/release/squeezy-reclaim" "$tree/client/squeezy-reclaim"

install -m 644 "$root/reclaim/README.md" "$root"/LICENSE-* "$tree/"
for part in hotspot v8 cpython client; do
	install -m 644 "$root/reclaim/$part/README.md" "$tree/$part/"
	[ "$part" = client ] || install -m 644 "$root"/LICENSE-* "$tree/$part/"
done

mkdir -p "$directory"
# The same content is the same archive.
tar -C "$work" --sort=name --owner=0 --group=0 --numeric-owner --mtime='1970-01-01 00:00Z' -cf - "$name" |
	gzip -n >"$directory/$name.tar.gz.new"
mv "$directory/$name.tar.gz.new" "$directory/$name.tar.gz"
say "reclaim: $directory/$name.tar.gz"
