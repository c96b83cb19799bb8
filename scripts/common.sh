# shellcheck shell=bash
# What the build scripts share: where things are, messages, content keys, progress. Source it.

# The checkout, and where everything is kept that can be made again (docs/reproducing.md).
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cache=${SQUEEZY_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/squeezy}
# shellcheck disable=SC2034 # used by those who source this
build=$root/build

# die MESSAGE: one line that says what failed and what to do about it.
die() {
	printf '%s: %s\n' "${0##*/}" "$*" >&2
	exit 1
}

say() {
	printf '%s\n' "$*"
}

# skip WHY: says what is not tested here; with SQUEEZY_NO_SKIP=1, as in CI, that is a failure.
skip() {
	[ "${SQUEEZY_NO_SKIP:-}" != 1 ] || die "not tested here, and SQUEEZY_NO_SKIP=1: $*"
	say "skipped: $*"
}

# need COMMAND PACKAGE: stops when COMMAND is not there.
need() {
	command -v "$1" >/dev/null ||
		die "$1 is missing: run scripts/install-dependencies.sh, or install the Debian package $2"
}

# retry COMMAND...: a program that gets something over a network, where a connection may break: three times at most.
retry() {
	local pause
	for pause in 5 20; do
		"$@" && return
		sleep "$pause"
	done
	"$@"
}

# lint_tools: the directory of the tools in scripts/lint-tools.txt, which is named after the contents of that file.
lint_tools() {
	printf '%s\n' "$cache/lint/$(sha256sum <"$root/scripts/lint-tools.txt" | cut -c1-16)"
}

# maven_jar GROUP:ARTIFACT:VERSION:jar[:CLASSIFIER] SHA256 FILE: gets a jar with Maven, from wherever that is
# set to get it, if it is the one that is meant.
maven_jar() {
	local plugin=org.apache.maven.plugins:maven-dependency-plugin:3.8.1 found new
	command -v mvn >/dev/null || "$root/scripts/install-dependencies.sh" squeezers
	mkdir -p "$(dirname "$3")"
	new=$(mktemp -d "$3.XXXXXX")
	mkdir -p "$cache/logs"
	retry timeout 600 mvn --batch-mode $plugin:copy -Dartifact="$1" -DoutputDirectory="$new" >"$cache/logs/maven.log" 2>&1 || {
		rm -rf "$new"
		die "cannot get $1: $(grep -m1 '^\[ERROR\]' "$cache/logs/maven.log" || echo "see $cache/logs/maven.log"); try again, or put the file to $3 by other means"
	}
	found=$(sha256sum "$new"/*.jar | cut -c1-64)
	[ "$found" = "$2" ] || {
		rm -rf "$new"
		die "$1 is not what it was: its SHA-256 is $found and has to be $2"
	}
	mv "$new"/*.jar "$3"
	rmdir "$new"
}

# debian_programs PACKAGE PROGRAM...: sets programs, a directory in the cache with these programs, extracted from Debian's
# package, which would start a server if it were installed.
debian_programs() {
	local package=$1 program missing=
	shift
	programs=$cache/$package
	for program in "$@"; do [ -x "$programs/$program" ] || missing=yes; done
	[ -n "$missing" ] || return 0
	mkdir -p "$programs"
	work=$(mktemp -d "$programs/new.XXXXXX")
	trap 'rm -rf "$work"' EXIT
	# apt complains if its own user cannot write to the directory, as here.
	local apt=(apt-get -o APT::Sandbox::User=root -o Acquire::Retries=3)
	(cd "$work" && { "${apt[@]}" download "$package" || { "${apt[@]}" update && "${apt[@]}" download "$package"; }; }) \
		>"$work/log" 2>&1 || die "cannot download Debian's package $package: $(tail -n 1 "$work/log")"
	dpkg-deb --extract "$work/$package"_*.deb "$work"
	for program in "$@"; do find "$work/usr" -type f -path "*bin/$program" -exec mv {} "$programs" \;; done
	rm -rf "$work"
}

# tree_hash DIR...: one hash of the names, modes and contents of all files below.
tree_hash() {
	local directory
	for directory in "$@"; do
		[ -d "$directory" ] || continue
		(cd "$directory" && find . -type f -not -path '*/__pycache__/*' -printf '%m %P\n' | LC_ALL=C sort -k2 |
			while read -r mode name; do
				printf '%s %s %s\n' "$mode" "$name" "$(sha256sum <"$name")"
			done)
	done | sha256sum | cut -c1-64
}

# hold_lock NAME: from now on this process alone works on NAME; waits for its turn. One at a time.
hold_lock() {
	mkdir -p "$cache/locks"
	exec 9>"$cache/locks/$1"
	if ! flock -n 9; then
		say "waiting: another build of the $1 is under way on this machine"
		flock -w 5400 9 || die "another build of the $1 has held $cache/locks/$1 for 90 minutes"
	fi
}

# with_progress LABEL LOG PATTERN EXPECTED FAILURE COMMAND...: runs COMMAND with its output in LOG and
# shows how many lines matched PATTERN so far, of EXPECTED (0: unknown), with an estimate of the time
# left. On a terminal that is one line that changes; elsewhere a line every 20 seconds. When COMMAND
# fails, shows why and stops with the message FAILURE. Never call it in a condition: set -e would
# not count inside of COMMAND, where that is a function.
with_progress() {
	local label=$1 log=$2 pattern=$3 expected=$4 failure=$5
	shift 5
	local interval=20 start=$SECONDS next=0 done_lines status=0 job text
	[ -t 1 ] && interval=1
	mkdir -p "$(dirname "$log")"
	: >"$log"
	# A process group of its own, so that an interrupt ends the whole tree below and not just its top.
	set -m
	("$@") >"$log" 2>&1 </dev/null 9>&- &
	job=$!
	set +m
	# shellcheck disable=SC2064 # the id of this job, now
	trap "kill -TERM -- -$job 2>/dev/null; exit 130" INT TERM
	while kill -0 "$job" 2>/dev/null; do
		if [ $((SECONDS - start)) -ge "$next" ]; then
			next=$((SECONDS - start + interval))
			done_lines=$(grep -cE "$pattern" "$log" || true)
			text=$(progress_text "$label" "$done_lines" "$expected" $((SECONDS - start)))
			if [ -t 1 ]; then printf '\r\033[K%s' "$text"; elif [ "$done_lines" -gt 0 ]; then say "$text"; fi
		fi
		sleep 0.2
	done
	wait "$job" || status=$?
	trap - INT TERM
	[ ! -t 1 ] || printf '\r\033[K'
	[ "$status" = 0 ] && return
	show_failure "$log"
	die "$failure"
}

# progress_text LABEL DONE EXPECTED SECONDS
progress_text() {
	if [ "$3" -gt "$2" ] && [ "$2" -gt 0 ]; then
		printf '%s: %d of about %d, %d s so far, about %d s left' "$1" "$2" "$3" "$4" $(($4 * ($3 - $2) / $2))
	else
		printf '%s: %d, %d s so far' "$1" "$2" "$4"
	fi
}

# show_failure LOG: the lines that say what went wrong, then the end of the log.
show_failure() {
	grep -nE '(error|Error|ERROR)[: ]|\*\*\*|FAILED' "$1" | head -20 >&2 || true
	printf -- '--- the end of %s\n' "$1" >&2
	tail -15 "$1" >&2
}

# build_programs SOURCE WHAT COMMAND...: sets programs, a directory in the cache with what COMMAND builds of Go modules. Its
# name is that of the directory SOURCE and the hash of what is in it; the last two are kept. COMMAND puts WHAT into
# $programs.new and names each package in a line. It runs once for all who need the same.
build_programs() {
	local name=${1##*/} what=$2
	local log=$cache/logs/$name.log
	programs=$cache/$name/$(tree_hash "$1" | cut -c1-16)
	shift 2
	[ ! -d "$programs" ] || return 0
	hold_lock "$name" >&2
	if [ ! -d "$programs" ]; then
		rm -rf "$programs.new"
		mkdir -p "$programs.new"
		with_progress "building $what: packages" "$log" '^[a-z]' 0 "cannot build $what: see $log" "$@" >&2
		mv "$programs.new" "$programs"
		keep_newest "$cache/$name" 2
	fi
	# Whatever runs next may run for long.
	exec 9>&-
}

# keep_newest DIRECTORY COUNT: removes all but the COUNT entries of DIRECTORY that were used last.
keep_newest() {
	local entry
	find "$1" -mindepth 1 -maxdepth 1 -not -name '*.new' -printf '%T@ %p\n' | sort -rn | tail -n +$(($2 + 1)) |
		while read -r _ entry; do rm -rf "$entry"; done
}
