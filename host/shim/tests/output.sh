#!/usr/bin/env bash
# Runs COUNT short containers, several at a time, and compares every byte of what they print: with Debian's containerd and
# two newer ones.
# usage: host/shim/tests/output.sh SHIM COUNT
set -euo pipefail
if [ "${2-}" != inside ]; then
	# shellcheck disable=SC2034 # it is for what is sourced
	containerds=$("$(dirname "$0")/containerds.sh" debian 2.2 newest)
fi
# shellcheck source-path=SCRIPTDIR source=containerd-common.sh
. "$(dirname "$0")/containerd-common.sh"

count=$5
workers=4
# Around the sizes of pages, of pipes, and of what the agent and the shim pass on at a time.
sizes=(0 1 100 4095 4096 4097 65535 65536 65537 300000)

make_layer
make_image "$work/layer"
start_containerd
ctr image import "$work/image.tar" >/dev/null
detach keeper sleep 100000

# check NUMBER: runs a container that prints so much and ends at once.
check() {
	local number=$1 out=${sizes[$1 % 10]} error=${sizes[$1 / 10 % 10]} status=0
	run "output-$number" sh -c "busybox yes out-$number | busybox head -c $out; busybox yes error-$number | busybox head -c $error >&2; exit $((number % 100))" \
		>"$work/out-$number" 2>"$work/error-$number" || status=$?
	# ctr ends with the container's status, and adds nothing to what it has printed.
	head -c "$out" < <(yes "out-$number") | cmp - "$work/out-$number" || return 1
	head -c "$error" < <(yes "error-$number") | cmp - "$work/error-$number" || return 1
	[ "$status" = $((number % 100)) ] || {
		echo "container $number has ended with $status" >&2
		return 1
	}
	rm "$work/out-$number" "$work/error-$number"
}
# work FIRST: every so many, from this one on.
work() {
	local number
	for ((number = $1; number < count; number += workers)); do
		check "$number" || return 1
	done
}
echo "containerd $(containerd --version | cut -d' ' -f3): $count short containers"
started=()
for worker in $(seq 0 $((workers - 1))); do
	work "$worker" &
	started+=("$!")
done
wait_for_all "${started[@]}" || die "output was lost, or is somebody else's"
echo "$count containers have printed what they should, in $SECONDS s"

remove keeper
until_true 120 no_vm_is_left
kill "$containerd"
