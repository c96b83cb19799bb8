#!/usr/bin/env bash
# Makes build/site of the repository's documents, and checks it.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=../common.sh
. "$(dirname "$0")/../common.sh"

tools=$(lint_tools)
if [ ! -d "$tools/furo" ] || [ ! -x /usr/bin/sphinx-build ]; then
	die "Sphinx is missing: run scripts/install-dependencies.sh site"
fi
rm -rf "$build/site.new"
mkdir -p "$build"
# Debian's own Python, for which Debian's Sphinx is. Every warning is an error, a missing document or anchor too.
PYTHONPATH=$tools /usr/bin/python3 -m sphinx -q -W --keep-going -n -E -j auto -c "$root/scripts/site" -d "$build/site.new/.doctrees" \
	"$root" "$build/site.new"
rm -rf "$build/site.new/.doctrees" "$build/site.new/.buildinfo"
/usr/bin/python3 "$root/scripts/site/check.py" "$build/site.new"
rm -rf "$build/site"
mv "$build/site.new" "$build/site"
