#!/bin/sh
# Starts one function as a process of this machine, in place of this script: its process is node's.
# usage: run.sh NAME     (NAME is a directory here)
#
# PORT          where it then serves POST /init and POST /run, on 127.0.0.1 (8080)
# MEMORY_LIMIT  the instance's memory in bytes, which the heap's limits follow from (268435456)
# EAGER_GC      1: collect garbage after each request
# NODE          node's program (node)
# NODE_OPTIONS  as node takes them
set -eu

here=$(dirname "$(readlink -f "$0")")
name=${1:-}
node=${NODE:-node}
limit=${MEMORY_LIMIT:-268435456}
mebibyte=1048576

die() {
	echo "run.sh: $*" >&2
	exit 2
}

case $name in
'' | *[!a-z-]*) die "usage: run.sh NAME, which is a function's directory in $here" ;;
esac
[ -f "$here/$name/index.js" ] || die "there is no function $name: $here has no $name/index.js"
command -v "$node" >/dev/null || die "there is no $node: set NODE to node's program"
case $limit in
*[!0-9]* | ??????????????*) die "MEMORY_LIMIT has to be a number of bytes, not $limit" ;;
esac
[ "$limit" -ge $((64 * mebibyte)) ] || die "MEMORY_LIMIT has to be at least 64 MiB, $((64 * mebibyte)) bytes, not $limit"

# As AWS Lambda's runtime for Node has it: a tenth for the young generation, whose flag is for one of its halves,
# and the rest for the old one. In MiB.
memory=$((limit / mebibyte))
young=$((memory / 10))
set -- --max-semi-space-size=$((young / 2)) --max-old-space-size=$((memory - young))
[ "${EAGER_GC:-}" != 1 ] || set -- "$@" --expose-gc

exec "$node" "$@" "$here/server/server.js" "$here/$name"
