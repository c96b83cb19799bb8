#!/usr/bin/env bash
# Makes what `squeezy bench code` compares: images of the functions, those of the runtimes, and the code in build/code,
# with the drives that the daemon makes of what is large.
# The same input gives the same code. Takes root, as examples/go-hello is an OCI image.
# usage: bench/src/experiments/code/build.sh
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=../../../../scripts/common.sh
. "$(dirname "$0")/../../../../scripts/common.sh"
here=$root/bench/src/experiments/code

"$root/scripts/install-dependencies.sh" examples
# The image of greet-node has the Node of the runtime.
"$root/runtimes/build.sh" python node native
"$root/examples/go-hello/image.sh"
for function in "$root/examples/go-hello" "$root/functions/html" "$here/python" "$here/node"; do
	"$root/guest/image/build.sh" "$function"
done

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/code" "$work/html" "$work/native"
cp "$here/python/app/action.py" "$work/code/python.py"
cp "$root/examples/node-hello/app/action.js" "$work/code/node.js"

cp "$here/native/main.go" "$root/examples/go-hello/action.go" "$work/native/"
(cd "$work/native" && CGO_ENABLED=0 GOOS=linux GOARCH=amd64 GOFLAGS='' GOTOOLCHAIN=local GO111MODULE=off \
	go build -trimpath -buildvcs=false -ldflags='-s -w -buildid=' -o "$work/code/native" main.go action.go)

# The packages are those of the image. As most archives are, it is without bytecode.
tree=$("$root/guest/image/build.sh" --tree "$root/functions/html" | tail -1)
cp -r "$tree/usr/local/lib/python3.11/dist-packages/." "$tree/function/." "$work/html/"
mv "$work/html/action.py" "$work/html/page.py"
cp "$here/html/__main__.py" "$work/html/"
rm -rf "$work"/html/{server.py,waitress*}
find "$work/html" -name __pycache__ -prune -exec rm -rf {} +
python3 - "$work/html" "$work/code/html.zip" <<'PYTHON'
import pathlib
import sys
import zipfile

directory, archive = map(pathlib.Path, sys.argv[1:])
with zipfile.ZipFile(archive, "w") as file:
    for path in sorted(path for path in directory.rglob("*") if path.is_file()):
        # Its time is the same each time.
        entry = zipfile.ZipInfo(str(path.relative_to(directory)))
        file.writestr(entry, path.read_bytes(), zipfile.ZIP_DEFLATED)
PYTHON

# drive NAME: what the daemon makes of code that is large, of the files in the directory `drive`.
drive() {
	chmod -R u=rwX,go=rX "$work/drive"
	mkfs.erofs --quiet -zlz4 -x-1 -T0 --all-root -U 00000000-0000-0000-0000-000000000000 "$work/code/$1.erofs" "$work/drive"
	rm -r "$work/drive"
}
mkdir -p "$work/drive/action"
cp "$work/code/native" "$work/drive/action/exec"
drive native
mkdir "$work/drive"
cp -r "$work/html" "$work/drive/action"
drive html

chmod -R u=rwX,go=rX "$work/code"
rm -rf "$build/code"
mv "$work/code" "$build/code"
say "$build/code"
