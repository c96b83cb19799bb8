#!/usr/bin/env bash
# Makes the image of one function: its files, and the squeezer that makes its instances give free memory back, are
# put together in build/functions/javascript/NAME, which the function's function.toml names.
# usage: functions/javascript/image.sh NAME [option of guest/image/build.sh]
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=../../scripts/common.sh
. "$(dirname "$0")/../../scripts/common.sh"
here=$root/functions/javascript

name=${1:?usage: functions/javascript/image.sh NAME [option of guest/image/build.sh]}
shift
[ -f "$here/$name/function.toml" ] || die "there is no function $name: $here has no $name/function.toml"

app=$build/functions/javascript/$name
rm -rf "$app"
mkdir -p "$app"
"$root/squeezers/v8/build.sh" "$app/squeezer"
cp -r "$here/run.sh" "$here/server" "$here/common" "$here/$name" "$app/"
exec "$root/guest/image/build.sh" "$@" "$here/$name"
