#!/usr/bin/env bash
# Builds a release of the current commit twice, each time from nothing: in checkouts at different places and in
# different time zones, which share what is downloaded and nothing that is built. All files have to be the same. Less
# than an hour on two processors, and some 10 GB.
#
# $SQUEEZY_CACHE is not touched but for downloads. What differs is kept there, to be compared.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=../../scripts/common.sh
. "$(dirname "$0")/../../scripts/common.sh"

need git git
commit=$(git -C "$root" rev-parse HEAD)
mkdir -p "$cache"
work=$(mktemp -d "$cache/twice.XXXXXX")
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM

# build NAME PLACE ZONE: the files of a release that is made in a checkout at PLACE, in $work/NAME.
build() {
	local name=$1 place=$work/$2 zone=$3 own=$work/$1-cache shared
	say "the $name release of ${commit:0:12}"
	mkdir -p "$own"
	# By names and hashes that are in the checkout. Cargo, pip and Maven have caches of their own, and Linux is a package.
	for shared in java node; do
		mkdir -p "$cache/$shared"
		ln -s "$cache/$shared" "$own/$shared"
	done
	git clone --quiet --shared --no-checkout "$root" "$place"
	git -C "$place" checkout --quiet --detach "$commit"
	env -u SQUEEZY_SIGNING_KEY TZ="$zone" SQUEEZY_CACHE="$own" "$place/packaging/release.sh" --package
	mv "$place/build/release" "$work/$name"
	rm -rf "$place" "$own"
}

build first checkout UTC0
build second somewhere/else/and/deeper UTC-14
[ -s "$work/first/SHA256SUMS" ] || die "there is nothing to compare"
differ=$(diff "$work"/{first,second}/SHA256SUMS | sed -n 's/^[<>] [0-9a-f]*  //p' | sort -u | paste -sd' ' || true)
if [ -n "$differ" ]; then
	trap - EXIT
	die "two releases of one commit differ in $differ: compare $work/first with $work/second"
fi
say "two releases of one commit have the same $(wc -l <"$work/first/SHA256SUMS") files"
