#!/usr/bin/env bash
# Fetches CPython 3.14, which Debian 12 does not have, with Maven; prints its path.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=../../../scripts/common.sh
. "$(dirname "$0")/../../../scripts/common.sh"

version=3.14.3-1.5.13
sum=eb5f1a6fe2dc498ac18927189a37f28a47b0ba06ae6bd85112eff023fe2eb46f
folder=$cache/cpython-$version
python=$folder/org/bytedeco/cpython/linux-x86_64/bin/python3.14

if [ ! -x "$python" ]; then
	rm -rf "$folder.new"
	maven_jar "org.bytedeco:cpython:$version:jar:linux-x86_64" $sum "$folder.new/jar" >&2
	python3 -m zipfile --extract "$folder.new/jar" "$folder.new"
	rm "$folder.new/jar"
	chmod +x "$folder.new/${python#"$folder"/}"
	mv "$folder.new" "$folder"
fi
printf '%s\n' "$python"
