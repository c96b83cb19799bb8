# shellcheck shell=bash disable=SC2154,SC2034 # build.sh, which sources this, sets and uses these
# A function's files from Debian: a base system, Python packages and the function's own. Sets key, and
# tree once the files are there.

# Change one when this script makes another base of the same packages, or other files of the same base and input.
base_recipe=3 recipe=4
suite=bookworm

# in_tree COMMAND...: runs COMMAND with the image's files as its root, without its own /proc or /dev.
in_tree() {
	if [ "$(id -u)" = 0 ]; then
		chroot "$tree" "$@"
	else
		unshare --map-root-user chroot "$tree" "$@"
	fi
}

# make_base TAR: Debian with the packages that the function names, and what no function reads left out.
make_base() {
	local mode=unshare path options=()
	[ "$(id -u)" = 0 ] && mode=root
	for path in /usr/share/doc/ /usr/share/man/ /usr/share/info/ /usr/share/locale/ /usr/share/lintian/ \
		/usr/share/bash-completion/; do
		options+=("--dpkgopt=path-exclude=$path*")
	done
	# Licences have to come along.
	options+=("--dpkgopt=path-include=/usr/share/doc/*/copyright")
	# usrmerge brings all of Perl along; usr-is-merged stands in for it. dpkg leaves what a package of
	# the function needs.
	local spare="usrmerge perl perl-modules-5.36 libperl5.36 libfile-find-rule-perl libnumber-compare-perl libtext-glob-perl"
	options+=("--customize-hook=chroot \"\$1\" dpkg --purge $spare || true")
	# Java links its manual pages there, which are left out, and fails without the directory.
	# shellcheck disable=SC2016 # for mmdebstrap's shell
	options+=('--essential-hook=mkdir -p "$1/usr/share/man/man1"' '--customize-hook=rm -rf "$1/usr/share/man/man1"')
	timeout 1200 mmdebstrap --verbose --variant=essential --mode="$mode" --format=tar \
		--include="$(printf '%s\n' usr-is-merged "$packages" | paste -sd,)" --aptopt='Acquire::Retries "3"' "${options[@]}" \
		"$suite" "$1.new" ${SQUEEZY_MIRROR:+"$SQUEEZY_MIRROR"} && mv "$1.new" "$1"
}

# install_python TARGET REQUIREMENTS...: Python packages, by version and hash, as wheels for the image's
# Python.
install_python() {
	local target=$1 platform requirement options=()
	for platform in manylinux2014 manylinux_2_17 manylinux_2_27 manylinux_2_28; do
		options+=(--platform "${platform}_x86_64")
	done
	shift
	for requirement in "$@"; do options+=(--requirement "$function_directory/$requirement"); done
	retry python3 -m pip install --quiet --disable-pip-version-check --no-input --no-compile --no-deps --require-hashes \
		--implementation cp --python-version 3.11 --only-binary=:all: --root-user-action=ignore --target "$target" \
		"${options[@]}"
	rm -rf "${target:?}/bin"
}

# leave_out TARGET PATTERN...: removes what of the packages no instance needs.
leave_out() {
	local target=$1 pattern matches
	shift
	for pattern in "$@"; do
		mapfile -t matches < <(compgen -G "$target/$pattern")
		[ ${#matches[@]} -gt 0 ] || die "$definition: exclude names $pattern, which no package has"
		rm -rf "${matches[@]}"
	done
}

# run_build: what the function's build script adds. It runs in the image, so that what it makes does not
# depend on the host's Python; its packages do not stay.
run_build() {
	mkdir "$tree/build"
	[ ${#build_requirements[@]} = 0 ] || install_python "$tree/build/packages" "${build_requirements[@]}"
	cp "$function_directory/$build_script" "$tree/build/build.py"
	in_tree /usr/bin/env PYTHONPATH=/build/packages /usr/bin/python3 /build/build.py /function
	rm -rf "${tree:?}/build"
}

# fill_tree: sets up tree from the base. Modules are compiled here, and never checked against their
# source again: importing reads one file instead of two, and all time stamps can be the same.
fill_tree() {
	local directory
	rm -rf "$tree"
	mkdir -p "$tree"
	tar -xf "$base" -C "$tree" --no-same-owner --exclude='./dev/*'
	rm -rf "${tree:?}"/{boot,tmp/*,var/cache/*,var/log/*,var/lib/apt/*} \
		"$tree"/usr/lib/python3.11/{test,ensurepip,idlelib,lib2to3,pydoc_data,turtledemo}
	echo instance >"$tree/etc/hostname"
	: >"$tree/etc/resolv.conf"
	mkdir -p "$tree/function"
	for directory in "${app[@]}"; do cp -r "$function_directory/$directory/." "$tree/function/"; done
	# Modes do not depend on the umask of whoever checked the files out.
	chmod -R u=rwX,go=rX "$tree/function"
	[ ! -f "$tree/etc/ssl/certs/java/cacerts" ] ||
		python3 "$root/guest/image/keystore.py" "$tree/etc/ssl/certs/java/cacerts"
	if [ -x "$tree/usr/bin/python3" ]; then
		[ ${#requirements[@]} = 0 ] || install_python "$python_packages" "${requirements[@]}"
		leave_out "$python_packages" "${exclude[@]}"
		[ -z "$build_script" ] || run_build
		find "$tree/usr" "$tree/function" -name __pycache__ -prune -exec rm -rf {} +
		in_tree /usr/bin/python3 -m compileall -q --invalidation-mode unchecked-hash \
			/usr/lib/python3.11 /usr/lib/python3 /usr/local/lib/python3.11 /function
	fi
}

# describe: reads [image]; sets key to what the image's content depends on, and pack_options.
describe() {
	local path
	packages=$(setting image.packages)
	[ -n "$packages" ] || die "$definition: [image] names no packages"
	build_script=$(setting image.build)
	mapfile -t app < <(setting image.app)
	mapfile -t requirements < <(setting image.requirements)
	mapfile -t exclude < <(setting image.exclude)
	mapfile -t build_requirements < <(setting image.build_requirements)
	[ ${#app[@]} -gt 0 ] || die "$definition: [image] has no app"
	for path in "${app[@]}" "${requirements[@]}" ${build_script:+"$build_script"} "${build_requirements[@]}"; do
		[ -e "$function_directory/$path" ] ||
			die "$function_directory/$path is not there, though [image] names it"
	done
	base=$image_cache/base/$(printf '%s\n' "$base_recipe" "$suite" "$packages" | sha256sum | cut -c1-20).tar
	key=$({
		echo "$base_recipe $recipe $suite $packages"
		for path in "${requirements[@]}" ${build_script:+"$build_script"} "${build_requirements[@]}"; do
			cat "$function_directory/$path"
		done
		printf '%s\n' "${exclude[@]}"
		tree_hash "${app[@]/#/$function_directory/}"
	} | sha256sum | cut -c1-20)
	tree=$image_cache/trees/$name-$key
	python_packages=$tree/usr/local/lib/python3.11/dist-packages
	# Fixed times: the same tree gives the same image.
	pack_options=(-T0 --all-root)
}

# make_tree: the files, with progress.
make_tree() {
	local tool
	for tool in mmdebstrap:mmdebstrap tar:tar; do need "${tool%%:*}" "${tool#*:}"; done
	python3 -m pip --version >/dev/null 2>&1 || need pip3 python3-pip
	if [ ! -f "$base" ]; then
		with_progress "image: Debian packages, steps" "$log_directory/base.log" '^(Get|Unpacking|Setting up|I:)' 200 \
			"cannot make the Debian base" make_base "$base"
	fi
	with_progress "image $name: files" "$log_directory/$name.log" '.' 0 \
		"cannot fill the image of $name" fill_tree
}

# write_definition FILE: what the host knows of the function.
write_definition() {
	ln -sfn "$(realpath "$definition")" "$1"
}
