"""This squeezer for the conformance suite."""

import subprocess

from matrix import NODES, PRELOADS, node
from program import Program

from conformance.interface import Adapter, HoldingProgram


class Holding(HoldingProgram, Program):
    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self.tell("hold", 1)
        self._holds = False

    def do(self, *command):
        self.tell(*command)
        if not self._holds:
            self.answer()
            self._holds = True
        return self.answer()

    def check(self):
        answer = self.do("check")
        if answer is not True:
            raise AssertionError(answer)

    def be_busy(self, seconds):
        self.tell("busy", seconds * 1000)

    def was_busy(self):
        self.answer()


class V8(Adapter):
    runtime = "v8"
    variants = {f"{version}_{route}": (node(version), route) for version in NODES for route in PRELOADS}
    not_a_socket = "there is a file that is no socket"
    no_folder = "no such file or directory"
    not_a_folder = "not a directory"
    too_long_path = "the path is too long: at most 107 bytes, its folder 97"
    relative_path = "the path is not absolute"
    taken_path = "another process listens there: set SQUEEZER_SOCKET to another path"
    too_long_line = "too long: at most 4096 bytes"
    # One is served, and 63 wait.
    clients_at_once = 64

    def start(self, variant, environment, wrapper=(), **options):
        node, route = variant
        return Holding(node, route, variables=environment, wrapper=wrapper, **options)

    def version(self, variant):
        return subprocess.check_output([variant[0], "-p", "process.versions.node"], text=True).strip()

    def collector(self, variant):
        return variant[1]

    def is_private_at_once(self, variant):
        """Only the addon makes the file elsewhere and links it."""
        return variant[1] == "addon"


ADAPTER = V8()
