#!/usr/bin/env bash
# Shows that the hooks cost nothing when CONFIG_SQUEEZY is off: compiles each hooked C file from the
# hooked and from the unpatched tree, with one configuration, and compares the instructions.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=../../scripts/common.sh
. "$(dirname "$0")/../../scripts/common.sh"

need objdump binutils
mapfile -t files < <(sed -n 's|^+++ b/\([^\t]*\)\.c\b.*|\1.o|p' "$root"/guest/kernel/hooks/6.12/*.patch | sort -u)
[ ${#files[@]} -gt 0 ] || die "no hook touches a C file"

# instructions OBJECT: every function's, without addresses, which move when a neighbour changes size.
# What is kept beside them: names of functions, and the symbols that instructions refer to.
instructions() {
	objdump -drw --no-show-raw-insn "$1" | sed -E '1,/^Disassembly/d
		s/^[0-9a-f]+ (<.*>:)$/\1/
		s/^ +[0-9a-f]+:\t//
		s/\t+[0-9a-f]+: (R_X86)/\t\1/
		s/\b[0-9a-f]+ (<[^>]*>)/\1/g'
}

for variant in off stock; do
	"$root/guest/kernel/build.sh" "$variant" "${files[@]}"
done
differing=()
for file in "${files[@]}"; do
	[ "$(instructions "$cache/kernel/objects/stock/$file" | wc -l)" -gt 0 ] ||
		die "$file has no instructions to compare"
	# The names of functions stand before what differs in them.
	if ! difference=$(diff -U0 -F '^<' <(instructions "$cache/kernel/objects/stock/$file") \
		<(instructions "$cache/kernel/objects/off/$file")); then
		differing+=("${file%.o}.c")
		printf '%s\n%s\n' "--- $file" "$(printf '%s\n' "$difference" | sed 1,2d | head -20)"
	fi
done
[ ${#differing[@]} -eq 0 ] || die "hooks change the object code although the option is off: ${differing[*]}"
say "the object code of ${#files[@]} hooked files is that of Linux without hooks"
