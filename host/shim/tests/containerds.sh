#!/usr/bin/env bash
# Prints where the programs of each containerd are that pods are tested with, and those that tests with CRI take besides: a
# line with directories as in PATH for each. NAMEs are `debian`, `2.2` and `newest`; all if there is none.
# usage: host/shim/tests/containerds.sh [NAME...]
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
[ $# -gt 0 ] || set -- debian 2.2 newest

tools=$("$here/kubernetes/build.sh")
for name; do
	case $name in
	debian) programs=$("$here/get-containerd.sh"):$tools ;;
	2.2) programs=$("$here/containerd-2.2/build.sh"):$tools ;;
	newest) programs=$tools ;;
	*)
		sed -n '/^# usage: /s/^# //p' "$0" >&2
		exit 2
		;;
	esac
	echo "$programs"
done
