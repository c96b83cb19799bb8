"""Programs with the squeezer in them, and the client of squeezers/client."""
import json
import os
import subprocess
import time

import conformance.program
from conformance.case import Case
from conformance.program import PATIENCE_SECONDS, environment_without

FOLDER = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PRELOAD = os.path.join(FOLDER, "preload")

# The Python that is tested, and the client of squeezers/client.
PYTHON = os.environ["SQUEEZY_TEST_PYTHON"]
CLIENT = os.environ["SQUEEZY_TEST_CLIENT"]


def ask_python(expression, python=PYTHON):
    """The value of an expression in the Python that is tested, without the squeezer."""
    output = subprocess.run([python, "-c", f"import sys; print({expression})"], env=environment_without("PYTHONPATH"),
                            capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=True)
    return output.stdout.strip()


FULL_VERSION = tuple(int(number) for number in ask_python("'%d %d %d' % sys.version_info[:3]").split())
VERSION = FULL_VERSION[:2]

# Python warns of a fork of a process with threads since 3.12; these count after the fork, when the
# squeezer's thread is there again (https://github.com/python/cpython/issues/137109).
MISCOUNTS_THREADS = (3, 13, 0) <= FULL_VERSION < (3, 13, 10) or FULL_VERSION == (3, 14, 0)
WARNINGS = "ignore" if MISCOUNTS_THREADS else "always"


class Program(conformance.program.Program):
    """A program of lines of Python."""

    def __init__(self, source, *, python=PYTHON, arguments=(), wrapper=(), environment=None, **options):
        inherited = {**environment_without("PYTHON"), "PYTHONPATH": PRELOAD, "PYTHONDONTWRITEBYTECODE": "1"}
        super().__init__([*wrapper, python, *arguments, "-c", source], {**inherited, **(environment or {})}, **options)


def run_client(*arguments):
    """Runs the client of squeezers/client."""
    return subprocess.run([CLIENT, *map(str, arguments)], capture_output=True, text=True, timeout=PATIENCE_SECONDS)


def client_answer(*arguments):
    """What the client of squeezers/client prints as JSON."""
    done = run_client(*arguments, "--json")
    if done.returncode != 0:
        raise AssertionError(done.stderr)
    return json.loads(done.stdout)


def child_answer(pid):
    """The same of a child of a fork, which has a socket only when it has lived for a while."""
    limit = time.monotonic() + PATIENCE_SECONDS
    while f"no squeezer in process {pid}" in run_client(pid, "--no-heap", "--no-trim").stderr:
        if time.monotonic() > limit:
            raise AssertionError(f"process {pid} has no squeezer")
        time.sleep(0.05)
    return client_answer(pid)


class ProgramTest(Case):
    """A test of programs that listen at self.path."""

    maxDiff = None

    def start(self, source, *, python=PYTHON, arguments=(), wrapper=(), **environment):
        environment.setdefault("SQUEEZER_SOCKET", self.path)
        return self.ends_with_test(Program(source, python=python, arguments=arguments, wrapper=wrapper,
                                           environment=environment))


# Says that it has come so far, and waits to be told to go on.
HERE = "print('here', flush=True); sys.stdin.readline()\n"
