"""Threads that allocate and check all they have, under one squeeze after the other."""

import threading
import time
import unittest

from conformance.case import STRESS
from conformance.program import PATIENCE_SECONDS
from matrix import for_each_jvm
from program import Program, UNSAFE_AGENT

SECONDS = 60 if STRESS else 10
# However long a slow machine takes for them.
LEAST_ANSWERS = 10


def squeeze_and_end(program, seconds, patience_seconds=PATIENCE_SECONDS):
    """The answers that it gave in so many seconds, or more, and what it said when it was told to end."""
    said = []
    done = threading.Thread(target=lambda: said.append(program.process.stdout.readline().strip()), daemon=True)
    done.start()
    answers = []
    end = time.monotonic() + seconds
    try:
        with program.client() as client:
            client.socket.settimeout(patience_seconds)
            while done.is_alive() and (time.monotonic() < end or len(answers) < LEAST_ANSWERS):
                answer = client.squeeze()
                if answer is None:
                    break
                answers.append(answer)
            else:
                program.say()
    except (OSError, ValueError):
        # No answer, or half of one: the program has crashed, or come to a standstill.
        pass
    done.join(patience_seconds)
    return answers, "".join(said)


@for_each_jvm
class Stress(unittest.TestCase):
    def each_stress(self, java, collector):
        with Program(java, f"-XX:+Use{collector}GC", main="Stress") as program:
            answers, said = squeeze_and_end(program, SECONDS)
            self.assertEqual(program.quit(), 0, program.errors())
            self.assertEqual(program.errors(), "")
        self.assertGreater(int(said), 10_000)
        self.assertGreaterEqual(len(answers), LEAST_ANSWERS)
        self.assertEqual({answer["error"] for answer in answers}, {None})


@for_each_jvm
class Control(unittest.TestCase):
    """The same memory given back by the same code, only not while the VM is stopped, must be noticed:
    otherwise the test above would show nothing."""

    def each_control(self, java, collector):
        with Program(java, f"-XX:+Use{collector}GC", squeezer=UNSAFE_AGENT, main="Stress") as program:
            _, said = squeeze_and_end(program, 60, 10)
            # Else it is what a crashing JVM says first.
            self.assertFalse(said.isdigit(), "the heap survived")
            # It has crashed, found itself corrupt, or come to a standstill.
            self.assertNotEqual(program.process.poll(), 0)
