#!/usr/bin/env bash
# Builds the OCI image of the daemon and runs what is in it as a container would, as the image's user: the doctor finds
# that images can be pulled, and the daemon answers a call. Some four minutes. As root; what packaging/test.sh needs has
# to be there.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=../scripts/common.sh
. "$(dirname "$0")/../scripts/common.sh"

own=$root/packaging
[ "$(id -u)" = 0 ] || die "run this as root: files in the image keep their owners"
need bwrap bubblewrap
need python3 python3
need umoci umoci
umask 022

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

packages=()
for name in squeezy-guest squeezy; do
	packages+=("$("$own/debian.sh" "$name" "$work")")
done
packages+=("$("$own/runtime.sh" python "$work")")
# The last line is the path, others say how far it has come.
archive=$("$own/oci.sh" "$work" "${packages[@]}" | tail -n 1)
mkdir "$work/layout"
tar -C "$work/layout" -xf "$archive"
umoci unpack --image "$work/layout:$(dpkg-deb -f "${packages[0]}" Version)" "$work/bundle" >"$work/umoci" 2>&1 ||
	die "the image cannot be unpacked: $(tail -n 1 "$work/umoci")"
image=$work/bundle/rootfs
# The user and the group, the directory, and the command, as a container engine is told.
python3 - "$work/bundle/config.json" >"$work/process" <<'PYTHON'
import json
import sys

with open(sys.argv[1]) as file:
    process = json.load(file)["process"]
print(process["user"]["uid"], process["user"]["gid"], process["cwd"], *process["args"], sep="\n")
PYTHON
mapfile -t process <"$work/process"
user=${process[0]} group=${process[1]} directory=${process[2]}
[ "$user" != 0 ] || die "the daemon is root in the image"

# inside COMMAND...: with its own root directory, processes and network. A root that only chroot has set may not make
# user namespaces.
inside() {
	timeout 600 env -i PATH=/usr/bin:/bin bwrap --die-with-parent --unshare-net --unshare-pid --bind "$image" / \
		--proc /proc --dev-bind /dev /dev --ro-bind /sys /sys --chdir "$directory" \
		setpriv --reuid "$user" --regid "$group" --clear-groups "$@"
}

printf 'memory = "1G"\nregistries = ["docker.io"]\n' >"$image/etc/squeezy/pulls.toml"
inside squeezy doctor --config /etc/squeezy/pulls.toml --json >"$work/found" 2>"$work/errors" ||
	die "the doctor finds something wrong: $(cat "$work/errors" "$work/found")"
python3 - "$work/found" <<'PYTHON' || die "the doctor does not find that images can be pulled"
import json
import sys

with open(sys.argv[1]) as file:
    findings = {finding["subject"]: finding for finding in json.load(file)}
pulls = findings["images from registries"]
if (pulls["verdict"], pulls["found"]) != ("good", "can be pulled"):
    sys.exit(pulls["found"])
PYTHON
say "images can be pulled in it"

# shellcheck disable=SC2016 # for the shell inside
inside sh -ec '"$@" >/tmp/log 2>&1 &
	daemon=$!
	tries=0
	until squeezy function list >/dev/null 2>&1; do
		tries=$((tries + 1))
		kill -0 "$daemon" 2>/dev/null && [ "$tries" -lt 120 ] || { cat /tmp/log >&2; exit 1; }
		sleep 0.5
	done
	echo "def main(args): return {\"hello\": args[\"name\"]}" >/tmp/hello.py
	squeezy function create hello /tmp/hello.py >/dev/null
	squeezy invoke hello --param name you || { cat /tmp/log >&2; exit 1; }
	kill "$daemon"
	wait "$daemon"' sh "${process[@]:3}" >"$work/answer" || die "it does not serve: $(cat "$work/answer")"
grep -q '"hello": "you"' "$work/answer" || die "a call is not answered: $(cat "$work/answer")"
say "a call is answered in it"

again=$("$own/oci.sh" "$work/again" "${packages[@]}" | tail -n 1)
cmp "$archive" "$again" || die "two images of the same packages differ"
say "all right"
