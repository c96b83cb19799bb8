"""Builds the test suites of the workspace that need VMs, and runs several of them at a time.

usage: scripts/test-suites.py [SUITE...]    all without any; a suite is PACKAGE/TEST, e.g. squeezy/serve

Within a suite, one test runs after the other.
"""

import sys

import suites

# The longest ones, so that none of them is left at the end.
FIRST = ["squeezy-kernel-tests/selftests", "squeezy/soak", "squeezy-kernel-tests/layouts", "squeezy/code"]
# These see whether processors are divided fairly, so nobody else may take any.
ALONE = ["squeezy/processors"]


def main(names):
    built = suites.build("--workspace", "--exclude", "squeezy-llfree-tests", "--test", "*")
    unknown = [name for name in names + FIRST + ALONE if name not in built]
    if unknown:
        sys.exit(f"there is no suite {unknown[0]}; there are {', '.join(built)}")
    chosen = sorted(names or built, key=lambda name: FIRST.index(name) if name in FIRST else len(FIRST))
    suites.run_all(
        [built[name] for name in chosen if name not in ALONE], [built[name] for name in chosen if name in ALONE]
    )


if __name__ == "__main__":
    main(sys.argv[1:])
