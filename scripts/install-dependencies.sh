#!/usr/bin/env bash
# Installs with apt what is missing to build, run and test; asks for root only when something is.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=common.sh
. "$(dirname "$0")/common.sh"

case ${1:-run} in
run | test | packages | lint | site | examples | squeezers) purpose=${1:-run} ;;
*)
	echo "usage: scripts/install-dependencies.sh [run|test|packages|lint|site|examples|squeezers]" >&2
	exit 2
	;;
esac

# Debian 12 packages an older Rust; this is the oldest version that works.
rust_version=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' "$root/Cargo.toml")
rust_target=x86_64-unknown-linux-musl

# wanted: package, what shows that it is there (a command or a path), what it is for.
wanted() {
	cat <<'TABLE'
gcc gcc the guest kernel
libc6-dev /usr/include/stdio.h tools of the kernel build
make make the guest kernel
flex flex the guest kernel
bison bison the guest kernel
bc bc the guest kernel
libelf-dev /usr/include/libelf.h objtool, a part of the kernel build
xz-utils xz unpacking the kernel
cpio cpio the initramfs
patch patch the hooks in the kernel
rsync rsync the kernel's source tree
ccache ccache compiling the kernel's variants
linux-source-6.12 /usr/src/linux-source-6.12.tar.xz the kernel's source
musl-tools musl-gcc static programs for the guest
busybox-static /bin/busybox the shell in the guest
mmdebstrap mmdebstrap function images
erofs-utils mkfs.erofs function images
python3 python3 function images
python3-pip /usr/bin/pip3 Python packages of function images
skopeo skopeo functions from OCI images
umoci umoci functions from OCI images
bubblewrap bwrap functions from OCI images
qemu-system-x86 qemu-system-x86_64 the VM
seabios /usr/share/seabios/bios-256k.bin the VM's firmware
TABLE
	# Without root, the image is made in a user namespace.
	[ "$(id -u)" = 0 ] || echo "uidmap newuidmap function images without root"
	if [ "$purpose" = test ]; then
		[ -x /usr/local/go/bin/go ] || echo "golang-go go the OpenTelemetry collector, gRPC and OpenWhisk's client of the tests"
		cat <<'TABLE'
chromium chromium the test of the web page
chromium-driver chromedriver the test of the web page
curl curl tests of pods
faketime faketime the test of a clock that jumps
openssl openssl tests of the daemon's certificate
iproute2 ip tests of the network of functions and pods
iptables /usr/sbin/iptables tests of pods whose ports are the node's, and of services
npm npm the test of OpenWhisk's client for JavaScript
procps pgrep tests that look for a daemon's VMs
systemd systemd-analyze the test of the systemd unit
TABLE
	fi
	if [ "$purpose" = packages ]; then
		cat <<'TABLE'
procps pgrep tests that look for a daemon's VMs
systemd-container systemd-nspawn the test of the package
gnupg gpg the test of two releases, which are signed
TABLE
	fi
	if [ "$purpose" = squeezers ]; then
		cat <<'TABLE'
g++ g++ the squeezer for Node
openjdk-17-jdk-headless javac the squeezer for the JVM
maven mvn libraries of the Java functions
nodejs node JavaScript functions that are plain processes
TABLE
	fi
	if [ "$purpose" = lint ]; then
		cat <<'TABLE'
git git which files there are
perl perl checkpatch
shellcheck shellcheck scripts
openjdk-17-jdk-headless javac Java
maven mvn a library of the Java functions
TABLE
	fi
	if [ "$purpose" = lint ] || [ "$purpose" = site ]; then
		cat <<'TABLE'
python3-bs4 /usr/lib/python3/dist-packages/bs4 the site of the documents
sphinx-basic-ng /usr/lib/python3/dist-packages/sphinx_basic_ng the site of the documents
python3-myst-parser /usr/lib/python3/dist-packages/myst_parser the site of the documents
TABLE
	fi
	if [ "$purpose" = examples ]; then
		cat <<'TABLE'
curl curl tests of the daemon's certificate and of the network of pods
golang-go go examples/go-hello
nodejs node JavaScript functions that are plain processes
openssl openssl tests of the daemon's certificate
TABLE
	fi
}

there() {
	case $1 in
	/*) [ -e "$1" ] ;;
	*) command -v "$1" >/dev/null ;;
	esac
}

as_root() {
	if [ "$(id -u)" = 0 ]; then
		"$@"
	else
		command -v sudo >/dev/null || die "sudo is missing: run this as root: $*"
		sudo "$@"
	fi
}

install_packages() {
	local log=$cache/logs/apt.log
	command -v apt-get >/dev/null ||
		die "this is not Debian: install these by other means: ${missing[*]}"
	as_root true || die "root is needed to install: ${missing[*]}"
	with_progress "installing: steps" "$log" '^(Get|Unpacking|Setting up)' 0 \
		"cannot install ${missing[*]}" as_root sh -c 'export DEBIAN_FRONTEND=noninteractive
			apt-get -o Acquire::Retries=3 update &&
			apt-get -o Acquire::Retries=3 -o DPkg::Lock::Timeout=300 install -y --no-install-recommends "$@"' \
		apt "${missing[@]}"
}

# The kernel's source may have been downloaded without root already.
have_source() {
	[ "$1" = linux-source-6.12 ] && [ -d "$cache/kernel/source" ]
}

# Whether the active toolchain has what rust-toolchain.toml lists. rustup must not install anything just to
# answer this, with its output hidden.
have_toolchain() {
	(
		cd "$root"
		export RUSTUP_AUTO_INSTALL=0
		cargo --version && [ -d "$(rustc --print sysroot)/lib/rustlib/$rust_target" ] || exit
		[ "$purpose" != lint ] || { cargo clippy --version && cargo fmt --version; }
	) >/dev/null 2>&1
}

# install_toolchain: begins to, where it is missing, and sets toolchain to the process that does. It takes as long as
# apt does, and needs nothing of what apt installs.
install_toolchain() {
	local log=$cache/logs/rustup.log
	have_toolchain && return
	command -v rustup >/dev/null ||
		die "install rustup (https://rustup.rs), or Rust $rust_version or newer with clippy, rustfmt and the standard library for $rust_target"
	say "installing: the Rust toolchain of rust-toolchain.toml"
	mkdir -p "$cache/logs"
	(cd "$root" && exec rustup toolchain install --no-self-update) >"$log" 2>&1 </dev/null &
	toolchain=$!
	trap 'kill "$toolchain" 2>/dev/null || true' EXIT
}

check_rust() {
	local have
	if [ -n "$toolchain" ] && ! wait "$toolchain"; then
		cat "$cache/logs/rustup.log" >&2
		die "rustup cannot install the toolchain of rust-toolchain.toml"
	fi
	trap - EXIT
	have=$(cd "$root" && cargo --version | cut -d' ' -f2)
	printf '%s\n%s\n' "$rust_version" "$have" | sort -VC ||
		die "cargo is $have, $rust_version or newer is needed: install it with rustup (https://rustup.rs)"
}

install_lint_tools() {
	local tools
	tools=$(lint_tools)
	[ -d "$tools" ] && return
	say "installing: tools for lint and the site (scripts/lint-tools.txt)"
	rm -rf "$tools.new"
	retry pip3 install --quiet --disable-pip-version-check --root-user-action=ignore --no-deps --only-binary=:all: \
		--require-hashes --target "$tools.new" -r "$root/scripts/lint-tools.txt" ||
		die "pip cannot install what scripts/lint-tools.txt lists"
	mv "$tools.new" "$tools"
	keep_newest "$cache/lint" 2
}

missing=()
while read -r package sign reason; do
	there "$sign" || have_source "$package" && continue
	missing+=("$package")
	say "installing: $package, for $reason"
done < <(wanted)
toolchain=
install_toolchain
[ ${#missing[@]} -eq 0 ] || install_packages
check_rust
case $purpose in lint | site) install_lint_tools ;; esac
