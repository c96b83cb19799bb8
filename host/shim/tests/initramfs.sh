#!/usr/bin/env bash
# Makes DIRECTORY/initramfs.cpio of a program, which is its init, and the libraries that it is linked to.
# usage: host/shim/tests/initramfs.sh PROGRAM DIRECTORY
set -euo pipefail

program=$1
directory=$2
tree=$directory/initramfs

install -D -s "$program" "$tree/init"
ldd "$program" | grep -o '/[^ ]*' | while read -r library; do
	install -D "$library" "$tree$library"
done
cd "$tree"
find . | cpio --quiet --create --format=newc --owner=+0:+0 >"$directory/initramfs.cpio"
