"""This squeezer for the conformance suite."""

import re
import subprocess

from matrix import java
from program import Program

from conformance.interface import Adapter, HoldingProgram


class Holding(HoldingProgram, Program):
    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self.say("hold 4")
        self._holds = False

    def do(self, command):
        if not self._holds:
            self.wait_until_ready()
            self.expect("held")
            self._holds = True
        return super().do(command)

    def expect(self, expected):
        line = self.line()
        if line != expected:
            raise AssertionError(line)

    def check(self):
        answer = self.do("check")
        if answer != "right":
            raise AssertionError(answer)

    def be_busy(self, seconds):
        self.say(f"busy {seconds * 1000}")

    def was_busy(self):
        self.expect("busy")


class HotSpot(Adapter):
    runtime = "hotspot"
    variants = {version: java(version) for version in ("17", "21")}
    not_a_socket = "there is a file that is no socket"
    no_folder = "No such file or directory"
    not_a_folder = "Not a directory"
    too_long_path = "the path is too long: at most 107 bytes"
    relative_path = "the path is not absolute"
    taken_path = "another process listens there: set SQUEEZER_SOCKET to another path"
    too_long_line = "too long: at most 4096 bytes"

    def start(self, variant, environment, wrapper=(), **options):
        return Holding(variant, "-XX:+UseG1GC", environment=environment, wrapper=wrapper, **options)

    def version(self, variant):
        settings = subprocess.run([variant, "-XshowSettings:properties", "-version"], check=True, capture_output=True,
                                  text=True).stderr
        return re.search(r"java\.vm\.version = (\S+)", settings)[1]

    def collector(self, variant):
        return "g1"


ADAPTER = HotSpot()
