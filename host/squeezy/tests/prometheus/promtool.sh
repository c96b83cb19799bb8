#!/usr/bin/env bash
# Checks metrics on standard input with promtool, extracted from Debian's package, which would
# start a server if it were installed.
# usage: host/squeezy/tests/prometheus/promtool.sh
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=../../../../scripts/common.sh
. "$(dirname "$0")/../../../../scripts/common.sh"

promtool=$cache/prometheus/promtool
if [ ! -x "$promtool" ]; then
	mkdir -p "$cache/prometheus"
	work=$(mktemp -d "$cache/prometheus/new.XXXXXX")
	trap 'rm -rf "$work"' EXIT
	# apt complains if its own user cannot write to the directory, as here.
	apt=(apt-get -o APT::Sandbox::User=root -o Acquire::Retries=3)
	(cd "$work" && { "${apt[@]}" download prometheus || { "${apt[@]}" update && "${apt[@]}" download prometheus; }; }) \
		>"$work/log" 2>&1 || die "cannot download Debian's package prometheus: $(tail -n 1 "$work/log")"
	dpkg-deb --extract "$work"/prometheus_*.deb "$work"
	mv "$work/usr/bin/promtool" "$promtool"
fi
"$promtool" check metrics
