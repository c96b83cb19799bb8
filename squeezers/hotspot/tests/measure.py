"""Prints the table of the README: squeezers/hotspot/test.sh measure (on a machine that does nothing else)."""

import statistics
import subprocess
import time
import unittest

from matrix import COLLECTORS, JDKS
from program import Program

MIB = 1 << 20
REPETITIONS = 10
CALLS = 50


def call(program):
    return int(program.do("invoke 8"))


def used(program):
    """A function that holds 20 MiB and was called for a while."""
    program.do("hold 20")
    return [call(program) for _ in range(CALLS)]


def collect_only(java, flags):
    """The heap after a collection that gives back nothing but what the JVM does by itself."""
    with Program(java, *flags) as program:
        used(program)
        subprocess.run([java[:-len("java")] + "jcmd", str(program.pid), "GC.run"], check=True,
                       capture_output=True)
        # G1 uncommits regions in the background, a while after the collection.
        time.sleep(3)
        return program.squeeze(heap=False, trim=False)["after_bytes"]


def measure(java, flags):
    answers, first, second, usual, private = [], [], [], [], []
    with Program(java, *flags) as program:
        usual += used(program)[CALLS // 2:]
        for _ in range(REPETITIONS):
            before = program.memory("Private_")  # what only this process has: its USS
            answers.append(program.squeeze())
            private.append((before, program.memory("Private_")))
            first.append(call(program))
            second.append(call(program))
            usual += [call(program) for _ in range(CALLS)][CALLS // 2:]
    middle = statistics.median
    heap = {name: middle(answer[name] for answer in answers) for name in answers[0] if name != "error"}
    return [
        f"{heap['before_bytes'] / MIB:.0f}", f"{collect_only(java, flags) / MIB:.0f}",
        f"{heap['after_bytes'] / MIB:.1f}", f"{max(a['after_bytes'] / a['live_bytes'] for a in answers):.4f}",
        f"{middle(b for b, _ in private) / MIB:.0f}", f"{middle(a for _, a in private) / MIB:.0f}",
        f"{heap['pause_ns'] / 1e6:.1f}", f"{heap['cpu_ns'] / 1e6:.1f}",
        f"{middle(usual) / 1e6:.1f}", f"{middle(first) / 1e6:.1f}", f"{middle(second) / 1e6:.1f}",
    ]


class Measure(unittest.TestCase):
    def test_measure(self):
        print("| JDK | collector | heap | collected | squeezed | of live | USS | squeezed | pause | CPU | call "
              "| first | second |")
        for version, home in JDKS:
            for collector in COLLECTORS:
                flags = [f"-XX:+Use{collector}GC", "-Xmx256m"]
                cells = measure(home + "/bin/java", flags)
                print("|", " | ".join([version, collector, *cells]), "|", flush=True)
