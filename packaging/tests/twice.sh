#!/usr/bin/env bash
# Builds a release of the current commit twice, each time from nothing: in checkouts at different places and in
# different time zones, which share what is downloaded and nothing that is built. All files have to be the same, and both
# are signed, with a key that is made for it. About an hour on two processors, and some 10 GB. The OCI image of the
# daemon needs root.
#
# $SQUEEZY_CACHE is not touched but for downloads. What differs is kept there, to be compared.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=../../scripts/common.sh
. "$(dirname "$0")/../../scripts/common.sh"

need git git
need gpg gnupg
parts=()
[ "$(id -u)" = 0 ] || { skip "the OCI image of the daemon: run this as root"; parts=(--package); }
commit=$(git -C "$root" rev-parse HEAD)
mkdir -p "$cache"
work=$(mktemp -d "$cache/twice.XXXXXX")
# Short, because gpg's agent has sockets there.
GNUPGHOME=$(mktemp -d)
export GNUPGHOME
key="a release twice <twice@localhost>"

# forget_key: ends gpg's agent, too.
forget_key() {
	gpgconf --kill all || true
	rm -rf "$GNUPGHOME"
}
trap 'forget_key; rm -rf "$work"' EXIT
trap 'exit 130' INT TERM
gpg --batch --quiet --pinentry-mode loopback --passphrase '' --quick-generate-key "$key" default default never

# date_changes CHECKOUT: what is signed has a date in CHANGELOG.md. It is the same commit in each checkout.
date_changes() {
	local time
	time=$(git -C "$1" show -s --format=%cI)
	sed -i '0,/^## .* (unreleased)$/s/ (unreleased)$/ - 2026-01-01/' "$1/CHANGELOG.md"
	GIT_AUTHOR_DATE=$time GIT_COMMITTER_DATE=$time git -C "$1" -c user.name=twice -c user.email=twice@localhost \
		-c commit.gpgSign=false commit --quiet --no-verify --allow-empty --all --message "a date"
}

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
	date_changes "$place"
	env SQUEEZY_SIGNING_KEY="$key" TZ="$zone" SQUEEZY_CACHE="$own" "$place/packaging/release.sh" "${parts[@]}"
	mv "$place/build/release" "$work/$name"
	rm -rf "$place" "$own"
	gpg --batch --quiet --verify "$work/$name"/SHA256SUMS.asc "$work/$name"/SHA256SUMS 2>"$work/gpg" ||
		die "the $name release has no good signature: $(tail -n 1 "$work/gpg")"
	(cd "$work/$name" && sha256sum --check --quiet SHA256SUMS) || die "the $name release has other checksums"
}

build first checkout UTC0
build second somewhere/else/and/deeper UTC-14
[ -s "$work/first/SHA256SUMS" ] || die "there is nothing to compare"
differ=$(diff "$work"/{first,second}/SHA256SUMS | sed -n 's/^[<>] [0-9a-f]*  //p' | sort -u | paste -sd' ' || true)
if [ -n "$differ" ]; then
	trap forget_key EXIT
	die "two releases of one commit differ in $differ: compare $work/first with $work/second"
fi
say "two releases of one commit are signed, and have the same $(wc -l <"$work/first/SHA256SUMS") files"
