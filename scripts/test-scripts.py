"""Runs tests that are programs of their own side by side, as many as there are processors.

usage: scripts/test-scripts.py COMMAND...    each one argument, with what it is given: "examples/test.sh examples/go-hello"

They are started in the order in which they are named, from the top of the checkout: those that take longest first.
"""

import shlex
import sys
from pathlib import Path

import suites

ROOT = Path(__file__).resolve().parent.parent


def main(commands):
    if not commands:
        sys.exit(__doc__)
    suites.run_all([suites.Suite(command, shlex.split(command), str(ROOT)) for command in commands], [])


if __name__ == "__main__":
    main(sys.argv[1:])
