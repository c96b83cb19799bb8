#!/usr/bin/env bash
# Everything `make lint` checks. Goes on after a finding, and fails at the end.
set -uo pipefail
# shellcheck source-path=SCRIPTDIR source=common.sh
. "$(dirname "$0")/common.sh"
cd "$root" || exit 1

failed=()

# check NAME COMMAND...
check() {
	local name=$1
	shift
	say "--- $name"
	"$@" || failed+=("$name")
}

# checkpatch IGNORED ARGUMENT...: FILE_PATH_CHANGES asks for MAINTAINERS entries. Without a GIT_DIR it
# neither takes a patch that git knows for a source file nor looks for licences in Linux's own history.
checkpatch() {
	local ignored=FILE_PATH_CHANGES,COMMIT_LOG_LONG_LINE,$1
	shift
	# It leaves a list of names where it stands.
	(cd "$cache" && GIT_DIR=/nonexistent "$linux/scripts/checkpatch.pl" --root="$linux" --strict --terse \
		--no-summary --quiet --no-signoff --ignore "$ignored" "$@")
}

kernel_sources() {
	local status=0 file ignored
	while IFS= read -r file; do
		ignored=NONE
		# The form of TRACE_EVENT() in all of Linux.
		case $file in */include/trace/*) ignored=OPEN_ENDED_LINE,PARENTHESIS_ALIGNMENT ;; esac
		checkpatch $ignored --file "$root/$file" || status=1
	done < <(find guest/kernel/src -name '*.[ch]')
	return $status
}

# c_files DIRECTORY...: absolute names of C files below them.
c_files() {
	git ls-files --cached --others --exclude-standard "${@/%//*.[ch]}" | while IFS= read -r file; do
		[ ! -f "$file" ] || printf '%s\n' "$root/$file"
	done
}

# All other C follows the kernel's style, minus the rules that only make sense there: types, macros and
# functions that libc does not have, and names that the JVM and ELF prescribe. Macro arguments here are
# names and types, which may be used more than once.
other_c() {
	local status=0 files
	local outside=CAMELCASE,PREFER_KERNEL_TYPES,PREFER_DEFINED_ATTRIBUTE_MACRO,BIT_MACRO,STRCPY,AVOID_EXTERNS
	outside+=,ENOSYS,NAKED_SSCANF,VOLATILE,STATIC_CONST_CHAR_ARRAY,EMBEDDED_FUNCTION_NAME
	outside+=,MACRO_ARG_REUSE,MACRO_ARG_PRECEDENCE
	mapfile -t files < <(c_files guest/kernel/tests)
	checkpatch $outside --file "${files[@]}" || status=1
	# Lines may be longer. checkpatch takes pointers to types that it does not know for multiplications.
	mapfile -t files < <(c_files squeezers functions host)
	checkpatch $outside,SPDX_LICENSE_TAG,SPACING --max-line-length=120 --file "${files[@]}" || status=1
	return $status
}

kernel_hooks() {
	local status=0 file
	for file in guest/kernel/hooks/*/*.patch; do
		# Names and types are those of the file that is patched.
		checkpatch PREFER_KERNEL_TYPES,CAMELCASE - <"$file" | sed "s|^-|$file|"
		[ "${PIPESTATUS[0]}" = 0 ] || status=1
	done
	return $status
}

shell_scripts() {
	git ls-files --cached --others --exclude-standard | while IFS= read -r file; do
		[ -f "$file" ] || continue
		case $file in *.md | *.patch | *.rs | *.py | *.c) continue ;; esac
		head -c 64 "$file" | grep -aqE '^#!.*\b(ba)?sh\b|^# shellcheck shell' && printf '%s\0' "$file"
	done | xargs -0 -r shellcheck -x
}

# As in the builds, every warning of javac is an error.
java_sources() {
	local classes status=0
	functions/java/build.sh >/dev/null || status=1
	classes=$(mktemp -d)
	javac -Xlint:all -Werror --release 11 -d "$classes" squeezers/hotspot/tests/java/*.java || status=1
	rm -rf "$classes"
	return $status
}

# The picture is rendered by hand, so that nobody needs Graphviz.
architecture_picture() {
	local sum
	sum=$(sha256sum <docs/architecture.dot | cut -d' ' -f1)
	grep -qF "<!-- architecture.dot: $sum -->" docs/architecture.svg && return
	echo "docs/architecture.svg is not made from docs/architecture.dot: make docs/architecture.svg"
	return 1
}

# Without advisories: a new one must not fail an unrelated change. Run `cargo deny check advisories` before a
# release.
dependencies() {
	"$tools/cargo-deny" --log-level error --locked check --hide-inclusion-graph bans licenses sources
}

# Private items too, since links in their documentation break as easily.
rust_documentation() {
	RUSTDOCFLAGS="-D warnings" cargo doc --quiet --workspace --no-deps --document-private-items
}

tools=$(lint_tools)/bin
linux=$(guest/kernel/build.sh --source | tail -1)
[ -d "$linux" ] || die "checkpatch needs the kernel's source, and it could not be unpacked"
check "checkpatch: guest/kernel/src" kernel_sources
check "checkpatch: guest/kernel/hooks" kernel_hooks
check "checkpatch: other C" other_c
check "rustfmt" cargo fmt --all --check
# These modules are declared by a macro, into which cargo fmt does not look.
check "rustfmt: experiments" rustfmt --check --edition 2024 bench/src/experiments/*/mod.rs
check "clippy" cargo clippy --quiet --workspace --all-targets -- -D warnings
check "rustdoc" rust_documentation
check "licences and sources of dependencies" dependencies
check "shellcheck" shell_scripts
check "oxlint" "$tools/oxlint" --quiet --deny-warnings .
check "javac" java_sources
check "ruff" "$tools/ruff" check --quiet --no-cache .
check "links in documents" python3 scripts/check-links.py
check "site of the documents" scripts/site/build.sh
check "picture of the architecture" architecture_picture

if [ ${#failed[@]} -gt 0 ]; then
	printf 'lint: findings in: %s\n' "$(printf '%s; ' "${failed[@]}" | sed 's/; $//')" >&2
	exit 1
fi
say "lint: no findings"
