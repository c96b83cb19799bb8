"""Long races, soaks and fuzzing: what takes too long for `make test`, several at a time.

usage: scripts/stress.py [--list] [NAME...]    all without any; what begins with the names, in their order, e.g. squeezy-kernel-tests

Lasts about five hours on two processors; what is wrong in one does not end the others.
"""

import os
import subprocess
import sys
from pathlib import Path

import suites

ROOT = Path(__file__).resolve().parent.parent
KERNEL = "squeezy-kernel-tests/"
SHIM = str(ROOT / "target/debug/containerd-shim-squeezy-v2")

# Name, the suite, what it is given, its environment. The longest ones first, so that none is left at the end.
LONG = [
    ("a guest that scribbles", "squeezy-vmm/lib", ["scribbles"], {"SQUEEZY_LLFREE_SECONDS": "3600"}),
    ("soak", "squeezy/soak", [], {"SQUEEZY_SOAK_SECONDS": "1800"}),
    ("soak with memfd", "squeezy/soak", [], {"SQUEEZY_SOAK_SECONDS": "600", "SQUEEZY_SOAK_MEMORY_BACKEND": "memfd"}),
    ("soak of squeezy", "squeezy/soak", [], {"SQUEEZY_SOAK_SECONDS": "600", "SQUEEZY_SOAK_POLICY": "squeezy"}),
    ("hostile neighbours", "squeezy/hostile", ["--ignored"], {}),
    ("host and guest", "squeezy-llfree-tests/processes", [], {"SQUEEZY_LLFREE_OPERATIONS": "100000000"}),
    ("properties of the state", "squeezy-llfree/lib", [], {"PROPTEST_CASES": "100000"}),
    ("headers", "squeezy-vmm/lib", ["no_header"], {"PROPTEST_CASES": "2000"}),
    ("a daemon with a VM that is killed", "squeezy/daemon", ["killed", "--ignored"], {"SQUEEZY_KILLS": "50"}),
    ("resizing", "squeezy-vmm/resizing", ["--ignored"], {}),
    ("a host without memory", "squeezy-vmm/short_host", ["--ignored"], {}),
    ("a store that is killed", "squeezy-store/lib", ["killed"], {"SQUEEZY_KILLS": "1000"}),
    ("a daemon that is killed", "squeezy/daemon", ["killed"], {"SQUEEZY_KILLS": "1000"}),
]
# These have clocks of their own, or namespaces, containerds and control groups with fixed names.
ALONE = [
    ("load", "squeezy/load", [], {"SQUEEZY_LOAD_CLIENTS": "5000"}),
]
# What a release costs.
RELEASED = [
    ("its cost", "squeezy-store/lib", ["tests::cost", "--ignored"], {}),
]
SCRIPTS = [
    ("squeezy-shim: output of containers", ["host/shim/tests/output.sh", SHIM, "1000"]),
    ("squeezy-shim: pods with kills", ["host/shim/tests/kills.sh", SHIM, "2000"]),
    ("squeezy-shim: pods with kills of kubelet", ["env", "rounds=200", "most=12", "host/shim/tests/kubernetes.sh", SHIM]),
    ("packaging: a release twice", ["packaging/tests/twice.sh"]),
]


def of_kernel(suite):
    """The tests of a suite that `make test` leaves out, each as a suite."""
    listed = subprocess.run([*suite.command, "--ignored", "--list"], stdout=subprocess.PIPE, text=True, check=True)
    for line in listed.stdout.splitlines():
        if line.endswith(": test"):
            test = line.removesuffix(": test")
            arguments = ["--ignored", "--exact", test, "--nocapture"]
            yield suites.Suite(f"{suite.name}/{test}", [*suite.command, *arguments], suite.directory)


def configured(built, table):
    for name, of, arguments, environment in table:
        suite = built[of]
        command = [*suite.command, *arguments, "--nocapture"]
        yield suites.Suite(f"{suite.name}: {name}", command, suite.directory, environment)


def scripts():
    for test in sorted(ROOT.glob("squeezers/*/test.sh")):
        name = str(test.relative_to(ROOT))
        yield suites.Suite(name, [str(test), "--stress"], str(ROOT))
    for name, command in SCRIPTS:
        yield suites.Suite(name, command, str(ROOT))


def main(names):
    only_list = "--list" in names
    names = [name for name in names if name != "--list"]
    built = suites.build("--workspace", "--exclude", "squeezy-llfree-tests")
    built |= suites.build("-p", "squeezy-llfree-tests")
    kernel = [suite for name in sorted(built) if name.startswith(KERNEL) for suite in of_kernel(built[name])]
    together = [*configured(built, LONG), *kernel]
    released = suites.build("--release", "-p", "squeezy-store")
    alone = [*configured(built, ALONE), *configured(released, RELEASED), *scripts()]
    for name in names:
        if not any(suite.name.startswith(name) for suite in together + alone):
            sys.exit(f"nothing begins with {name}: see scripts/stress.py --list")

    def chosen(all_suites):
        return [suite for name in names or [""] for suite in all_suites if suite.name.startswith(name)]

    together, alone = chosen(together), chosen(alone)
    if only_list:
        print("\n".join(suite.name for suite in together + alone))
        return
    suites.run_all(together, alone)


if __name__ == "__main__":
    os.chdir(ROOT)
    main(sys.argv[1:])
