"""This squeezer for the conformance suite."""
from support import PYTHON, Program, ask_python

from conformance.interface import Adapter, HoldingProgram

SOURCE = """
import sys, time
def make():
    return [{"number": number, "name": "record %d" % number} for number in range(10_000)]
held = make()
for line in sys.stdin:
    command, seconds = line.split()
    end = time.monotonic() + float(seconds)
    while time.monotonic() < end:
        pass
    print(command, held == make(), flush=True)
"""


class Holding(HoldingProgram, Program):
    def check(self):
        self.say("check 0")
        self.expect("check True")

    def be_busy(self, seconds):
        self.say(f"busy {seconds}")

    def was_busy(self):
        self.expect("busy True")

    def expect(self, expected):
        line = self.line()
        if line != expected:
            raise AssertionError(line)


class CPython(Adapter):
    runtime = "cpython"
    # test.sh starts the tests for each Python.
    variants = {"": PYTHON}
    not_a_socket = "is there and is not a socket"
    no_folder = "No such file or directory"
    not_a_folder = "Not a directory"
    too_long_path = "path too long"
    relative_path = "has to be an absolute path"
    taken_path = "another process listens at"
    too_long_line = "longer than 4096 bytes"

    def start(self, variant, environment, wrapper=(), **options):
        return Holding(SOURCE, python=variant, environment=environment, wrapper=wrapper, **options)

    def version(self, variant):
        return ask_python("sys.version.split()[0]", variant)

    def collector(self, variant):
        return None


ADAPTER = CPython()
