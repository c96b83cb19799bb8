#!/usr/bin/env bash
# Runs Go: the machine's if it is new enough, otherwise the one below, which an older Go, such as Debian's, gets as a
# module.
# usage: scripts/go.sh ARGUMENT...
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=common.sh
. "$(dirname "$0")/common.sh"

oldest=1.26
version=1.26.8
sum=h1:ZOmGe1OnfREDMIdb1Qi4G9JSuDPBLGExZMQ4nis1RXM=

# Static programs, of the modules in go.sum and no others, the same wherever they are built. Each package is named, for
# build_programs of common.sh to show how far it is. ARGUMENTs count more than these.
export CGO_ENABLED=0 GOFLAGS="-mod=readonly -v -trimpath -ldflags=-s"

for go in go /usr/local/go/bin/go; do
	found=$("$go" env GOVERSION 2>/dev/null) || continue
	if printf 'go%s\n' "$oldest" "${found#go}" | sort -V -C; then exec "$go" "$@"; fi
done

toolchain=$cache/go/$version
if [ ! -x "$toolchain/bin/go" ]; then
	hold_lock go
fi
if [ ! -x "$toolchain/bin/go" ]; then
	need go golang-go
	say "getting: Go $version" >&2
	mkdir -p "$cache/go" "$cache/logs"
	work=$(mktemp -d "$cache/go/new.XXXXXX")
	trap 'chmod -R u+w "$work" && rm -rf "$work"' EXIT
	echo "module none" >"$work/go.mod"
	(cd "$work" && GOPATH=$work/path GOFLAGS=-mod=mod GOSUMDB=off timeout 600 \
		go mod download -json "golang.org/toolchain@v0.0.1-go$version.linux-amd64") >"$cache/logs/go.log" 2>&1 ||
		die "cannot get Go $version: $(tail -n 1 "$cache/logs/go.log")"
	grep -qF "\"Sum\": \"$sum\"" "$cache/logs/go.log" || die "Go $version is not what it was: see $cache/logs/go.log"
	got=$(sed -n 's/.*"Dir": "\(.*\)",*/\1/p' "$cache/logs/go.log")
	chmod -R u+w "$got"
	chmod 755 "$got"/bin/* "$got"/pkg/tool/*/*
	mv -T "$got" "$toolchain"
fi
exec "$toolchain/bin/go" "$@" 9>&-
