#!/usr/bin/env bash
# Makes a directory with the preload and its addon, which is all that a Node process needs.
# usage: squeezers/v8/build.sh [DIRECTORY]     (build/squeezers/v8)
#
# The addon is built with the headers in NODE_HEADERS (/usr/local/include/node in Node's own containers). Without
# that they come from PyPI, with pinned hashes, and are kept in $SQUEEZY_CACHE (~/.cache/squeezy). It loads in all
# versions that are known whichever of them the headers are from, where there is a C library at least as new.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=../../scripts/common.sh
. "$(dirname "$0")/../../scripts/common.sh"

here=$root/squeezers/v8
directory=${1:-$build/squeezers/v8}

need g++ g++
headers=${NODE_HEADERS:-}
if [ -z "$headers" ]; then
	python3 -m pip --version >/dev/null 2>&1 || need pip3 python3-pip
	home=$(python3 "$here/tests/nodes.py" "$cache/node" 18)
	headers=${home#18=}/include/node
fi
[ -f "$headers/node_api.h" ] || die "$headers has no node_api.h: set NODE_HEADERS to Node's include directory"

mkdir -p "$directory/lib"
# Not in place: a process may have the old ones mapped.
g++ -std=c++17 -O2 -fPIC -shared -fno-exceptions -fno-rtti -fvisibility=hidden -Wall -Wextra -Werror \
	-isystem "$headers" -Wl,--as-needed -Wl,-z,now -Wl,-z,relro -o "$directory/squeeze.node.new" "$here/addon.cc"
mv "$directory/squeeze.node.new" "$directory/squeeze.node"
install -m 644 "$here/preload.js" "$directory/preload.js"
install -m 644 "$here"/lib/*.js "$directory/lib/"
say "v8: $directory/preload.js"
