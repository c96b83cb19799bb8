# Everything there is to do here. `make run` and `make test` are all a newcomer needs.
# What is built is kept in $SQUEEZY_CACHE (~/.cache/squeezy), keyed by what it was built from.

.DEFAULT_GOAL := help
.PHONY: help release run trial test test-fast test-off test-squeezers test-vm test-kubernetes test-packages stress lint site bench kernel image function-image runtimes selftests programs squeezy squeezers dependencies clean

# What `make run` passes on: make run ARGS="--policy squeezy --duration 60"
ARGS ?=
FUNCTION ?= functions/html
# What `make test-fast` tests.
FUNCTIONS := $(patsubst %/function.toml,%,$(wildcard functions/*/function.toml))
EXAMPLES := $(patsubst %/function.toml,%,$(wildcard examples/*/function.toml))
# What `make test-squeezers` tests, those that take longest first.
SQUEEZERS := squeezers/hotspot squeezers/cpython
SQUEEZERS += $(filter-out $(SQUEEZERS),$(patsubst %/test.sh,%,$(wildcard squeezers/*/test.sh functions/*/test.sh)))
# For `make runtimes`: python node native java; all if empty
RUNTIMES ?=
# For `make kernel`: release debug benchmark off stock numa
VARIANT ?= release
# For `make bench`: see bench/README.md
EXPERIMENT ?= reclaim

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-15s %s\n", $$1, $$2 }' Makefile

# Says how long it takes before anything is installed.
run: ## build what is missing and run a function in an N:1 VM
	@scripts/build-side-by-side.sh FUNCTION=$(FUNCTION)
	SQUEEZY_BUILD=$(CURDIR)/build/trial target/trial/squeezy run $(FUNCTION) $(ARGS)

# The programs of `make run`. Kernel and images are those in build/.
trial: dependencies
	@scripts/build-programs.sh --trial
	@guest/image/initramfs.sh trial >/dev/null
	@ln -sfnt build/trial ../kernel ../images

test: test-fast test-off test-squeezers test-vm ## all tests, the fast ones first

test-fast: dependencies ## tests that need no VM
	@scripts/install-dependencies.sh examples
	cargo test --workspace --lib --bins
	cargo test -p squeezy-llfree-tests
	@python3 scripts/run-unittest.py discover scripts/tests
	@[ -n "$$SQUEEZY_TRACES" ] || { echo "left out: the published Azure traces, for SQUEEZY_TRACES names no directory with them"; exit; }; \
	cargo test -p squeezy-load --test real_traces -- --ignored
	@for function in $(FUNCTIONS); do scripts/test-function.sh $$function || exit; done
	@[ "$$(id -u)" = 0 ] || { bash -c '. scripts/common.sh; skip "functions from OCI images, whose files keep their owners, and nodes with a root directory of their own: run this as root"'; exit; }; \
	python3 scripts/test-scripts.py "python3 scripts/run-unittest.py discover packaging/tests" \
		"python3 scripts/run-unittest.py discover guest/image/tests" $(EXAMPLES:%="examples/test.sh %")

test-off: dependencies ## the kernel's hooks cost nothing with CONFIG_SQUEEZY off
	guest/kernel/compare-off.sh

test-squeezers: dependencies ## the squeezers that squeeze living instances, and functions to squeeze, with stock runtimes
	@scripts/install-dependencies.sh squeezers
	@python3 scripts/test-scripts.py $(SQUEEZERS:%=%/test.sh)

# Several suites at a time, see there.
test-vm: dependencies kernel-release image runtimes selftests ## tests in VMs
	@scripts/install-dependencies.sh test
	@scripts/install-dependencies.sh examples
	@python3 scripts/test-suites.py

# Not among all tests: building Kubernetes and containerd takes half an hour.
test-kubernetes: dependencies kernel-release ## pods in a VM, through ctr, CRI and in a cluster, with several versions of containerd
	@scripts/install-dependencies.sh test
	@guest/image/initramfs.sh >/dev/null
	@runtimes/build.sh native
	cargo build -p squeezy-shim -p squeezy-requests
	cargo build -p squeezy-requests --target x86_64-unknown-linux-musl
	@containerd=$$(host/shim/tests/kubernetes/build.sh) && \
	SQUEEZY_CONTAINERD=$$containerd/containerd python3 scripts/run-unittest.py discover packaging/tests
	@containerds=$$(host/shim/tests/containerds.sh) && export containerds && \
	cargo test -p squeezy-shim --test containerd
	@containerds=$$(host/shim/tests/containerds.sh 2.2 newest) && export containerds && \
	host/shim/tests/containerd-vm.sh $(CURDIR)/target/debug/containerd-shim-squeezy-v2 && \
	host/shim/tests/containerd-network.sh $(CURDIR)/target/debug/containerd-shim-squeezy-v2
	@host/shim/tests/cri.sh $(CURDIR)/target/debug/containerd-shim-squeezy-v2
	@host/shim/tests/critest.sh $(CURDIR)/target/debug/containerd-shim-squeezy-v2
	@host/shim/tests/output.sh $(CURDIR)/target/debug/containerd-shim-squeezy-v2 100
	@host/shim/tests/kills.sh $(CURDIR)/target/debug/containerd-shim-squeezy-v2 40
	@host/shim/tests/knative.sh $(CURDIR)/target/debug/containerd-shim-squeezy-v2
	@host/shim/tests/openwhisk.sh $(CURDIR)/target/debug/containerd-shim-squeezy-v2
	@host/shim/tests/daemonset.sh $(CURDIR)/target/debug/containerd-shim-squeezy-v2
	@host/shim/tests/kubernetes.sh $(CURDIR)/target/debug/containerd-shim-squeezy-v2

test-packages: programs kernel-release image ## the Debian packages and OCI images: installed, used and removed, as root
	@scripts/install-dependencies.sh packages
	@runtimes/build.sh python
	@packaging/test-shim.sh
	@packaging/test.sh
	@packaging/test-oci.sh

# Several at a time, see there.
stress: dependencies kernel-release kernel-debug kernel-off kernel-numa image runtimes selftests ## long races in VMs, and a long soak
	cargo build -p squeezy-shim
	@scripts/install-dependencies.sh squeezers
	@scripts/install-dependencies.sh packages
	@python3 scripts/stress.py

lint: dependencies ## what scripts/lint.sh checks, in every language
	@scripts/install-dependencies.sh lint
	@scripts/lint.sh

site: ## the documents as a site with search, in build/site
	@scripts/install-dependencies.sh site
	@scripts/site/build.sh

bench: dependencies kernel-release kernel-off kernel-numa kernel-benchmark image programs ## one experiment: EXPERIMENT=reclaim ARGS=--quick
	target/release/squeezy bench $(EXPERIMENT) $(ARGS)

kernel: dependencies kernel-$(VARIANT) ## the guest's kernel: VARIANT=release|debug|benchmark|off|stock|numa

kernel-%: dependencies
	@guest/kernel/build.sh $*

image: function-image ## the function's image and the initramfs
	@guest/image/initramfs.sh >/dev/null

function-image: dependencies
	@guest/image/build.sh $(FUNCTION)

# Java needs a JDK and Maven, which its build installs.
runtimes: dependencies ## images that run code: RUNTIMES=python for one
	@runtimes/build.sh $(RUNTIMES)

selftests: dependencies ## programs that test the kernel from inside
	@$(MAKE) --no-print-directory -C guest/kernel/tests/programs OUT=$(CURDIR)/build

programs: dependencies ## target/release/squeezy, and squeezy-bench beside it
	@scripts/build-programs.sh --experiments

squeezy: dependencies
	@scripts/build-programs.sh

# Needs Graphviz. The checksum tells `make lint` which version of the source was rendered.
docs/architecture.svg: docs/architecture.dot
	neato -n -Tsvg $< -o $@
	@sed -i "2i <!-- architecture.dot: $$(sha256sum <$< | cut -d' ' -f1) -->" $@

squeezers: dependencies ## an archive of the squeezers in squeezers/, for other machines
	@scripts/install-dependencies.sh squeezers
	@squeezers/package/build.sh

release: dependencies ## Debian packages, OCI images, manifests, bill of materials and checksums, in build/release: of a commit, as root
	@packaging/release.sh

dependencies:
	@scripts/install-dependencies.sh

clean: ## remove what was built here; the cache stays
	cargo clean
	rm -rf build
