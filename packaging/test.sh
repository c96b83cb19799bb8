#!/usr/bin/env bash
# Builds the packages of what has been built, does in a Debian tree what README.md says for Debian, and boots the tree
# with systemd-nspawn for it. Then it uses the service: call, upgrade as docs/operations.md says, as many actions as
# there may be, kill, stop, a configuration that is wrong, removal. At last the image for nodes tells the tree's
# containerd of its runtime, and takes it away. About ten minutes. As root; the kernel, the image of functions/html,
# that of the runtime for Python and the programs in target/release have to be there.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=../scripts/common.sh
. "$(dirname "$0")/../scripts/common.sh"

own=$root/packaging
[ "$(id -u)" = 0 ] || die "run this as root: it boots a system"
need systemd-nspawn systemd-container
need mmdebstrap mmdebstrap
for file in build/kernel/release/bzImage build/initramfs.cpio build/images/html.erofs build/images/runtime-python.erofs; do
	[ -e "$root/$file" ] || die "$file is missing: make programs kernel image runtimes"
done

work=$(mktemp -d)
tree=$work/tree
# Those in the tree, by name.
declare -A packages
booted=

end() {
	if [ -n "$booted" ]; then
		# The first asks it to shut down.
		kill -TERM "$booted" 2>/dev/null || true
		timeout 30 tail --pid="$booted" -f /dev/null || kill -KILL "$booted" 2>/dev/null || true
	fi
	rm -rf "$work"
}
trap end EXIT
trap 'exit 130' INT TERM

install_debian() {
	mmdebstrap --quiet --variant=apt --include=systemd,systemd-sysv,dbus,procps bookworm "$tree"
	# There are no devices, and no network of its own.
	ln -s /dev/null "$tree/etc/systemd/system/systemd-udevd.service"
}

# The commands for Debian, of which the first one installs.
mapfile -t commands < <(sed -n '/^    apt install/,/^$/s/^    //p' "$own/README.md")
[ "${#commands[@]}" = 4 ] || die "packaging/README.md does not say in four commands how to begin"

# Those for an upgrade, of which the last one upgrades. The others make a copy to go back to.
mapfile -t upgrade < <(sed -n '/^### Upgrade/,/^## /s/^    //p' "$root/docs/operations.md")
[ "${#upgrade[@]}" = 4 ] || die "docs/operations.md does not say in four commands how to upgrade"

install_squeezy() {
	local name package
	for name in squeezy squeezy-guest squeezy-shim squeezy-runtime-python; do
		case $name in
		squeezy-runtime-*) package=$("$own/runtime.sh" "${name#squeezy-runtime-}" "$work") ;;
		*) package=$("$own/debian.sh" "$name" "$work") ;;
		esac
		packages[$name]=$tree/${package##*/}
		cp "$package" "$tree"
	done
	cmp "${packages[squeezy]}" "$("$own/debian.sh" squeezy "$work/again")" || die "two packages of the same differ"
	# Nobody is there to be asked.
	printf 'APT::Get::Assume-Yes "true";\nAPT::Install-Recommends "false";\n' >"$tree/etc/apt/apt.conf.d/99test"
	# Nothing runs in the tree yet; apt finds all that the packages depend on.
	chroot "$tree" apt-get -qq update >"$work/apt" 2>&1 || die "apt: $(tail -1 "$work/apt")"
	chroot "$tree" sh -ec "${commands[0]}" >"$work/apt" 2>&1 || die "${commands[0]}: $(tail -3 "$work/apt")"
	chroot "$tree" apt-get -qq install "./${packages[squeezy-shim]##*/}" containerd >"$work/apt" 2>&1 || die "apt: $(tail -3 "$work/apt")"
	# Another daemon may run on this machine, whose network the tree shares.
	sed -i 's/^listen = .*/listen = "127.0.0.1:3299"/' "$tree/etc/squeezy/squeezy.toml"
	# The default where the host has huge pages for it; more depends on what the unit allows.
	echo 'memory_backend = "memfd"' >>"$tree/etc/squeezy/squeezy.toml"
	mkdir -p "$tree/usr/lib/squeezy/images"
	cp -L "$root"/build/images/html.{erofs,toml} "$tree/usr/lib/squeezy/images/"
}

# inside COMMAND...: runs it in the booted tree.
inside() {
	nsenter --target "$leader" --all --root --wd env SQUEEZY_URL=http://127.0.0.1:3299 "$@"
}

# until_true WHAT COMMAND...: waits until the command succeeds in the booted tree.
until_true() {
	local what=$1 tries=0
	shift
	until inside "$@" >"$work/output" 2>&1; do
		tries=$((tries + 1))
		[ "$tries" -lt 120 ] || complain "never: $what"
		sleep 0.5
	done
	say "$what"
}

complain() {
	inside journalctl --no-pager --unit squeezy >&2 || tail "$work/console" >&2
	die "$1"
}

# raise PACKAGE VERSION: the same package with this version, in the tree.
raise() {
	local contents=$work/raised/${1##*/} version
	version=$(dpkg-deb -f "$1" Version)
	mkdir -p "$work/raised"
	dpkg-deb --raw-extract "$1" "$contents"
	sed -i "/^Version:\|^Depends:\|^Breaks:/s/${version//./\\.}/$2/g" "$contents/DEBIAN/control"
	dpkg-deb --root-owner-group -Znone --build "$contents" "$tree" >/dev/null
}

# What has to be as before after an upgrade.
state() {
	inside squeezy function list
	inside squeezy activations
}

upgrade_squeezy() {
	local name command former later other=$work/squeezy-runtime-node
	later=$(dpkg-deb -f "${packages[squeezy]}" Version)+later
	for name in "${!packages[@]}"; do
		raise "${packages[$name]}" "$later"
	done
	# A release also has what is not installed.
	install -d "$other/DEBIAN"
	dpkg-deb -f "$tree/squeezy-runtime-python_${later}_amd64.deb" | sed '/^Package:/s/python/node/' >"$other/DEBIAN/control"
	dpkg-deb --root-owner-group -Znone --build "$other" "$tree" >/dev/null
	for command in "${upgrade[@]:0:3}"; do
		inside sh -ec "$command" >"$work/output" 2>&1 || complain "$command: $(tail -3 "$work/output")"
	done
	# So that there is a VM to be ended.
	inside squeezy invoke html >/dev/null || complain "a call is not answered once the state has been copied"
	state >"$work/before"
	former=$(inside systemctl show --property MainPID --value squeezy)
	inside sh -ec "${upgrade[3]//VERSION/$later}" >"$work/apt" 2>&1 || complain "${upgrade[3]}: $(tail -3 "$work/apt")"
	for name in "${!packages[@]}"; do
		[[ $(inside dpkg-query --show "$name") = *"$later" ]] || complain "$name is not $later"
	done
	[[ $(inside dpkg-query --show squeezy-runtime-node) != *"$later" ]] || complain "an upgrade installs what was not installed"
	until_true "it serves after an upgrade" sh -c \
		"[ \"\$(systemctl show --property MainPID --value squeezy)\" != $former ] && squeezy function get hello"
	state >"$work/after"
	cmp "$work/before" "$work/after" || complain "an upgrade changes what there is"
	inside squeezy invoke hello --param name you >"$work/answer" || complain "a call after an upgrade fails"
	grep -q '"hello": "you"' "$work/answer" || complain "a call after an upgrade is not answered"
	# An action keeps the build of its runtime; a new one has the later.
	inside squeezy function create new hello.py >/dev/null || complain "after an upgrade there is no runtime for Python"
	inside squeezy invoke new --param name you >"$work/answer" || complain "a call of new code fails after an upgrade"
	grep -q '"hello": "you"' "$work/answer" || complain "a call of new code is not answered after an upgrade"
	say "a later version has all that there was, and answers calls"
}

# fill_daemon: as many actions as there may be, of which three are there, and what the daemon has resident then, when
# nothing runs: the target in bench/targets.toml.
fill_daemon() {
	local daemon
	# shellcheck disable=SC2016 # for the shell inside
	inside sh -ec 'for number in $(seq 997); do squeezy function create "action-$number" hello.py; done' >"$work/answer" ||
		complain "1000 actions cannot be created"
	inside systemctl restart squeezy || complain "it cannot be started with 1000 actions"
	until_true "it serves 1000 actions" squeezy function get action-997
	daemon=$(inside systemctl show --property MainPID --value squeezy)
	# shellcheck disable=SC2016 # for awk
	until_true "it has at most 40 MiB resident" awk '/^VmRSS:/ { exit !($2 <= 40960) }' "/proc/$daemon/status"
}

say "installing Debian and Squeezy into $tree"
install_debian
install_squeezy
systemd-nspawn --quiet --register=no --keep-unit --boot --console=pipe --directory="$tree" </dev/null >"$work/console" 2>&1 &
booted=$!
leader=
for _ in $(seq 60); do
	# Others of its children end before its init has begun.
	leader=$(pgrep --parent "$booted" --exact systemd || true)
	[ -z "$leader" ] || break
	sleep 0.5
done
[ -n "$leader" ] || die "the tree cannot be booted: $(tail -1 "$work/console")"
until_true "systemd runs" systemctl --quiet is-active dbus
until_true "the service runs" systemctl --quiet is-active squeezy
inside squeezy function create html >/dev/null
inside squeezy invoke html --param items 3 >"$work/answer" || complain "a call fails"
grep -q '"items": 3' "$work/answer" || complain "a call is not answered"
say "a call is answered"
# shellcheck disable=SC2016 # for the shell inside
until_true "its VM's memory is measured" bash -c 'exec 3<>/dev/tcp/127.0.0.1/3299
	printf "GET /metrics HTTP/1.0\r\n\r\n" >&3
	grep -q "^squeezy_resident_bytes{function=\"html\"} [1-9]" <&3'
for command in "${commands[@]:1}"; do
	inside sh -ec "$command" >"$work/answer" || complain "$command"
done
grep -q '"hello": "you"' "$work/answer" || complain "a call of code is not answered"
say "a call of code is answered"
upgrade_squeezy
fill_daemon
[ "$(inside stat --format '%U %a' /var/lib/squeezy)" = "squeezy 700" ] || complain "the state directory is not private"

echo 'log_file = "/var/log/squeezy/squeezy.log"' >>"$tree/etc/squeezy/squeezy.toml"
# Nothing has run since it was started with all its actions.
inside squeezy invoke html >/dev/null || complain "a call among 1000 actions is not answered"
first=$(inside systemctl show --property MainPID --value squeezy)
vm=$(inside pgrep --oldest --parent "$first" qemu) || complain "there is no VM"
inside kill -KILL "$first"
until_true "it is started again after a kill" sh -c "! kill -0 $first && ! kill -0 $vm && systemctl --quiet is-active squeezy && squeezy function get html"

[ "$(inside stat --format '%U %a' /var/log/squeezy)" = "squeezy 700" ] || complain "the directory for logs is not private"
inside grep -q "serving on" /var/log/squeezy/squeezy.log || complain "the log is not in its file"
inside squeezy invoke html >/dev/null || complain "a call after that is not answered"
inside squeezy invoke html --param items 50000 >"$work/late" &
late=$!
# shellcheck disable=SC2016 # for the shell inside
until_true "a call is under way" bash -c 'exec 3<>/dev/tcp/127.0.0.1/3299
	printf "GET /metrics HTTP/1.0\r\n\r\n" >&3
	grep -q "state=\"busy\"} 1" <&3'
inside systemctl stop squeezy
wait "$late" || complain "the call under way was not answered when it was stopped"
inside pgrep qemu && complain "a VM is left"
[ "$(inside systemctl show --property Result --value squeezy)" = success ] || complain "it did not stop in time"
say "it is stopped, after the call under way"

inside sed -i 's/^memory = .*/memory = "lots"/' /etc/squeezy/squeezy.toml
! inside systemctl start squeezy 2>/dev/null || complain "it runs with a configuration that is wrong"
until_true "it gives up on a configuration that is wrong" systemctl --quiet is-failed squeezy
inside journalctl --no-pager --unit squeezy >"$work/journal"
grep -q 'squeezy.toml: line 7: memory: "lots"' "$work/journal" || complain "it does not say what is wrong"
inside squeezy doctor --config /etc/squeezy/squeezy.toml >"$work/doctor" 2>&1 && complain "the doctor finds nothing wrong"
grep -q 'line 7' "$work/doctor" || complain "the doctor does not say what is wrong"

mkdir -p "$tree/var/lib/squeezy-shim"
inside apt-get -qq remove -y squeezy squeezy-guest squeezy-shim squeezy-runtime-python >/dev/null 2>&1 || complain "it cannot be removed"
for file in etc/squeezy/squeezy.toml var/lib/squeezy/key; do
	[ -f "$tree/$file" ] || complain "a removal takes /$file along"
done
# The package does not know it.
rm "$tree"/usr/lib/squeezy/images/html.*
# The others are forgotten.
inside apt-get -qq purge -y squeezy >"$work/apt" 2>&1 || complain "it cannot be purged: $(tail -1 "$work/apt")"
[ -d "$tree/var/lib/squeezy-shim" ] || complain "a purge of the service takes what is the shim's along"
inside apt-get -qq purge -y squeezy-shim >"$work/apt" 2>&1 || complain "the shim cannot be purged: $(tail -1 "$work/apt")"
[ -z "$(find "$tree"/{etc,var/lib,var/log,usr/bin,usr/lib}/squeezy "$tree"/var/lib/squeezy-shim 2>/dev/null)" ] || complain "a purge leaves something"
say "it is removed, and after a purge nothing is left"

archive=$("$own/node.sh" "$work" "${packages[squeezy-guest]}" "${packages[squeezy-shim]}")
mkdir "$work/layout"
tar -C "$work/layout" -xf "$archive"
umoci unpack --image "$work/layout:$(dpkg-deb -f "${packages[squeezy]}" Version)" "$work/bundle" >"$work/umoci" 2>&1 ||
	die "the image cannot be unpacked: $(tail -1 "$work/umoci")"
cp -a "$work/bundle/rootfs" "$tree/node-image"
mkdir -p "$tree/node-image"/{proc,dev}
# node ACTION: what a privileged pod of the image does, in the node's process namespace.
node() {
	# shellcheck disable=SC2016 # for the shell inside
	inside unshare --mount sh -c 'cd /node-image && mount --rbind / host && mount --bind /proc proc && mount --bind /dev dev &&
		PATH=/usr/bin:/bin exec /usr/sbin/chroot . /usr/bin/squeezy-node "$1"' sh "$1" >"$work/said" 2>&1 ||
		complain "$1: $(tail -1 "$work/said")"
}
containerd_process() {
	inside systemctl show --property MainPID --value containerd
}
until_true "containerd runs" systemctl --quiet is-active containerd
cp "$tree/etc/containerd/config.toml" "$work/config.toml"
first=$(containerd_process)
node install
second=$(containerd_process)
[ "$first" != "$second" ] || complain "containerd was not restarted: $(cat "$work/said")"
until_true "it knows the runtime" ctr version
inside containerd config dump | grep -q io.containerd.squeezy.v2 || complain "containerd does not know the runtime"
node install
[ "$second" = "$(containerd_process)" ] || complain "containerd was restarted for nothing"
node remove
until_true "it runs without the runtime" ctr version
cmp "$work/config.toml" "$tree/etc/containerd/config.toml" || complain "its configuration is another than before"
[ -z "$(find "$tree"/{var/lib,usr/lib,run}/squeezy "$tree"/usr/local/bin/containerd-shim-* 2>/dev/null)" ] ||
	complain "a removal leaves something"
say "a node has the runtime, and has nothing of it afterwards"
say "all right"
