#!/usr/bin/env bash
# Fetches CPython 3.14, which Debian 12 does not have, from Maven Central; prints its path.
set -euo pipefail

version=3.14.3-1.5.13
sum=eb5f1a6fe2dc498ac18927189a37f28a47b0ba06ae6bd85112eff023fe2eb46f
cache=${SQUEEZY_CACHE:-$HOME/.cache/squeezy}/cpython-$version
python=$cache/org/bytedeco/cpython/linux-x86_64/bin/python3.14

if [ ! -x "$python" ]; then
	rm -rf "$cache.new"
	mkdir -p "$cache.new"
	curl --fail --silent --show-error --max-time 600 --output "$cache.new/jar" \
		"https://repo1.maven.org/maven2/org/bytedeco/cpython/$version/cpython-$version-linux-x86_64.jar"
	echo "$sum  $cache.new/jar" | sha256sum --check --quiet >&2
	python3 -m zipfile --extract "$cache.new/jar" "$cache.new"
	rm "$cache.new/jar"
	chmod +x "$cache.new/${python#"$cache"/}"
	mv "$cache.new" "$cache"
fi
printf '%s\n' "$python"
