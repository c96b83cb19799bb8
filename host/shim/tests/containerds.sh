#!/usr/bin/env bash
# Prints where the programs of each containerd are that pods are tested with, and those that tests with CRI take besides: a
# line with directories as in PATH for each. NAMEs are `debian`, which has 1.6, VERSION where there is containerd-VERSION/,
# and `newest`; all, the oldest first, if there is none.
# usage: host/shim/tests/containerds.sh [NAME...]
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
if [ $# = 0 ]; then
	mapfile -t versions < <(printf '%s\n' "$here"/containerd-*/ | sed 's,.*/containerd-\(.*\)/$,\1,' | sort -V)
	set -- debian "${versions[@]}" newest
fi

tools=$("$here/kubernetes/build.sh")
for name; do
	case $name in
	debian) programs=$("$here/get-containerd.sh"):$tools ;;
	newest) programs=$tools ;;
	*) programs=$("$here/build-containerd.sh" "$name"):$tools ;;
	esac
	echo "$programs"
done
