#!/usr/bin/env bash
# Unpacks the archive elsewhere, and squeezes a process of each runtime with nothing but what is in it.
# usage: squeezers/package/test.sh [--stress]     (the same with both)
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=../../scripts/common.sh
. "$(dirname "$0")/../../scripts/common.sh"

# A program has started by then. Nothing is measured with it.
patience_seconds=60

work=$(mktemp -d)
programs=()
trap 'kill "${programs[@]}" 2>/dev/null || true; wait; rm -rf "$work"' EXIT
"$root/squeezers/package/build.sh" "$work" >/dev/null
tar -C "$work" -xzf "$work"/squeezer-*.tar.gz
rm "$work"/*.tar.gz
unpacked=$(echo "$work"/squeezer-*)

# squeeze RUNTIME COMMAND...: starts the program, and asks it when it has its garbage.
squeeze() {
	local runtime=$1 process answer end=$((SECONDS + patience_seconds))
	shift
	SQUEEZER_SOCKET=$work/$runtime.sock "$@" >"$work/$runtime.out" 2>&1 &
	process=$!
	programs+=("$process")
	until grep -q ready "$work/$runtime.out" && [ -S "$work/$runtime.sock" ]; do
		if ! kill -0 "$process" 2>/dev/null || [ $SECONDS -gt $end ]; then
			die "$runtime: the program did not start: $(cat "$work/$runtime.out")"
		fi
		sleep 0.05
	done
	answer=$("$unpacked/client/squeezer" --json "$process")
	python3 - "$runtime" "$answer" <<'CHECK'
import json
import sys

runtime, report = sys.argv[1], json.loads(sys.argv[2])
answer = report["answer"]
assert report["hello"]["runtime"] == runtime, report
assert answer["before_bytes"] - answer["after_bytes"] > 10 << 20, report
CHECK
	say "--- $runtime: OK"
}

mkdir "$work/programs"
cat >"$work/programs/Garbage.java" <<'JAVA'
class Garbage {
	public static void main(String[] arguments) throws InterruptedException {
		for (int i = 0; i < 40; i++) {
			byte[] garbage = new byte[1 << 20];
			java.util.Arrays.fill(garbage, (byte) i);
		}
		System.out.println("ready");
		Thread.sleep(Long.MAX_VALUE);
	}
}
JAVA
javac -d "$work/programs" "$work/programs/Garbage.java"
squeeze hotspot java "-agentpath:$unpacked/hotspot/libsqueezer.so" -Xms128m -XX:+UseSerialGC -cp "$work/programs" Garbage

node=$(python3 "$root/squeezers/v8/tests/nodes.py" "$cache/node" 20)
# shellcheck disable=SC2016 # it is JavaScript's
squeeze v8 "${node#20=}/bin/node" --require "$unpacked/v8/preload.js" -e '
	let held = Array.from({ length: 400000 }, (_, i) => ({ i, name: `object ${i}` }));
	held = null;
	console.log("ready");
	setInterval(() => {}, 1000);'

squeeze cpython env PYTHONPATH="$unpacked/cpython/preload" PYTHONMALLOC=malloc python3 -u -c '
import time
held = [[i, str(i)] for i in range(300000)]
held[0].append(held)
del held
print("ready")
while True:
    time.sleep(1)'
