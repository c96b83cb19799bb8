#!/usr/bin/env bash
# Builds the image of a VM that compiles a C project: a C compiler, and of Linux' sources libbpf and bpftool.
# usage: bench/src/rigs/compile_vm/build.sh
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=../../../../scripts/common.sh
. "$(dirname "$0")/../../../../scripts/common.sh"

linux=$("$root/guest/kernel/build.sh" --source 2>&1 | tail -1)
# Its definition stays where the image's points to.
function=$build/compile
rm -rf "$function"
mkdir -p "$function/source"
(cd "$linux" && cp -a --parents tools/lib tools/include tools/build tools/scripts tools/arch tools/bpf/bpftool \
	scripts kernel/bpf/disasm.c kernel/bpf/disasm.h "$function/source")
cat >"$function/function.toml" <<'TOML'
name = "compile"
description = "A C compiler, and libbpf and bpftool to be compiled"
command = ["/usr/bin/make", "-C", "/function/tools/bpf/bpftool", "OUTPUT=/tmp/out/", "bootstrap"]
working_directory = "/tmp"
port = 8080
memory_limit = "768M"
vcpus = 1.0
concurrency = 1
keep_alive_seconds = 60
init_timeout_seconds = 60
run_timeout_seconds = 60

[environment]
PATH = "/usr/local/bin:/usr/bin:/bin"

[image]
packages = ["gcc", "make", "python3", "libc6-dev", "libelf-dev", "zlib1g-dev"]
app = ["source"]

[request]

[check]
field = "none"
TOML
"$root/guest/image/build.sh" "$function"
