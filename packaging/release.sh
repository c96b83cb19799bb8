#!/usr/bin/env bash
# Builds a release: Debian packages of Squeezy, of each runtime and of containerd's runtime, OCI images, manifests for
# Kubernetes, bill of materials and checksums, in build/release. From nothing it takes half an hour on two processors,
# most of it for the guest's kernel. The same commit on the same Debian gives the same bytes.
# usage: packaging/release.sh [--package]
#
# --package leaves out the OCI image of the daemon, which needs root. With $SQUEEZY_SIGNING_KEY, a key of gpg, the
# checksums are signed.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=../scripts/common.sh
. "$(dirname "$0")/../scripts/common.sh"

own=$root/packaging
release=$build/release
case ${1:-} in
'' | --package) ;;
-h | --help) sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0"; exit 0 ;;
*) die "usage: packaging/release.sh [--package]" ;;
esac
[ -z "$(git -C "$root" status --porcelain --untracked-files=no)" ] ||
	die "there are changes that are not committed: a release is made of a commit"
SOURCE_DATE_EPOCH=$(git -C "$root" log -1 --format=%ct)
export SOURCE_DATE_EPOCH
version=$(sed -n 's/^version = "\(.*\)"/\1/p' "$root/Cargo.toml" | head -1)
# Whoever signs it publishes it.
[ -z "${SQUEEZY_SIGNING_KEY:-}" ] || grep -qE "^## ${version//./\\.} - [0-9]{4}-[0-9]{2}-[0-9]{2}$" "$root/CHANGELOG.md" ||
	die "CHANGELOG.md has no heading \"## $version - DATE\": give $version its date, or unset \$SQUEEZY_SIGNING_KEY"

# Who built it and where must not show.
umask 022
RUSTFLAGS="--remap-path-prefix=$root=squeezy --remap-path-prefix=${CARGO_HOME:-$HOME/.cargo}=cargo"
RUSTFLAGS+=" --remap-path-prefix=$(cd "$root" && rustc --print sysroot)=rust"
export RUSTFLAGS CARGO_TARGET_DIR=$root/target/package SQUEEZY_PROGRAMS=$root/target/package/dist
static=x86_64-unknown-linux-musl
export SQUEEZY_STATIC_PROGRAMS=$root/target/package/$static/dist

programs() {
	(cd "$root" && cargo build --locked --profile dist -p squeezy -p squeezy-bench -p squeezy-shim &&
		cargo build --locked --profile dist --target "$static" -p squeezy-requests)
}

"$root/guest/kernel/build.sh" release
with_progress "programs: crates" "$cache/logs/release-programs.log" '^ *Compiling' 0 "cannot build the programs" programs
"$root/guest/image/initramfs.sh" >/dev/null
"$root/scripts/install-dependencies.sh" squeezers
"$root/runtimes/build.sh"

rm -rf "$release"
mkdir -p "$release"
packages=()
for name in squeezy-guest squeezy; do
	packages+=("$("$own/debian.sh" "$name" "$release")")
done
shim=$("$own/debian.sh" squeezy-shim "$release")
for definition in "$root"/runtimes/*/function.toml; do
	packages+=("$("$own/runtime.sh" "$(basename "$(dirname "$definition")")" "$release")")
done
printf '%s\n' "${packages[@]}" "$shim"
"$own/node.sh" "$release" "${packages[0]}" "$shim"
for manifest in runtimeclass daemonset requests removal; do
	sed "s/@VERSION@/$version/" "$own/kubernetes/$manifest.yaml" >"$release/squeezy-$manifest.yaml"
done
if [ "${1:-}" != --package ]; then
	"$own/oci.sh" "$release" "${packages[@]}"
fi
"$own/bill_of_materials.py" "$version" "$release"/*.oci.tar >"$release/squeezy_$version.cdx.json"
(cd "$release" && sha256sum -- squeezy* >SHA256SUMS)
if [ -n "${SQUEEZY_SIGNING_KEY:-}" ]; then
	gpg --batch --yes --local-user "$SQUEEZY_SIGNING_KEY" --armor --detach-sign "$release/SHA256SUMS"
	say "signed: $release/SHA256SUMS.asc"
else
	say "not signed: \$SQUEEZY_SIGNING_KEY names no key"
fi
say "release $version is in $release"
