"""What a squeeze gives back, and what it keeps."""

import os
import signal
import threading
import time
import unittest

from conformance.case import STRESS
from conformance.program import PATIENCE_SECONDS
from matrix import for_each_node
from program import Program

MEBIBYTE = 1 << 20
# Of V8's heap.
HEAP_PAGE = 256 << 10
# Resident memory of the heap, for each byte in use. V8's pages are of 256 KiB, so it is not 1.
MOST_FOR_LIVE = 1.10
# Where the heap is the runtime's own and nothing else, the half-empty page of each of V8's spaces shows.
MOST_FOR_LIVE_IDLE = 1.30
# With two of three objects gone and those that stay spread over all pages: a collection moves a bounded part of them.
MOST_FOR_LIVE_THIN = 1.20


@for_each_node
class Squeeze(unittest.TestCase):
    def each_heap(self, node, route):
        with Program(node, route) as program:
            program.do("hold", 24)
            program.do("garbage", 60)
            memory = program.memory()
            answer = program.squeeze()
            self.assertLessEqual(answer["after_bytes"], answer["live_bytes"] * MOST_FOR_LIVE)
            self.assertGreater(answer["live_bytes"], 24 * MEBIBYTE * 0.9)
            given = answer["before_bytes"] - answer["after_bytes"]
            # What V8 says is what the kernel sees.
            self.assertGreater(memory - program.memory(), given * 0.8)
            self.assertGreaterEqual(answer["advised_bytes"], 0)
            self.assertGreater(answer["pause_ns"], 0)
            self.assertGreater(answer["cpu_ns"], 0)
            self.assertIs(program.do("check"), True)

    def each_frozen(self, node, route):
        """All is given back when the answer is there: the process may be frozen at once."""
        with Program(node, route) as program:
            program.do("hold", 8)
            program.do("garbage", 100)
            program.squeeze()
            os.kill(program.pid, signal.SIGSTOP)
            frozen = program.memory()
            os.kill(program.pid, signal.SIGCONT)
            # What V8's threads had left to do, they do now.
            time.sleep(0.5)
            self.assertLess(frozen - program.memory(), MEBIBYTE)

    def each_idle(self, node, route):
        with Program(node, route) as program:
            answer = program.squeeze()
            self.assertLessEqual(answer["after_bytes"], answer["live_bytes"] * MOST_FOR_LIVE_IDLE)

    def each_untouched(self, node, route):
        """V8 counts all of the page that new objects come from, where nearly nothing is after a collection.

        Unless it takes one that it has kept, as it does more often on a busy machine: that is a race of its threads. So
        there are as many tries as it takes.
        """
        end = time.monotonic() + PATIENCE_SECONDS
        while True:
            with Program(node, route) as program:
                program.do("garbage", 20)
                answer = program.squeeze()
                uncounted = program.do("statistics")["total_physical_size"] - answer["after_bytes"]
                self.assertGreaterEqual(answer["after_bytes"], answer["live_bytes"])
            if route != "addon" or uncounted > MEBIBYTE / 8:
                return
            self.assertLess(time.monotonic(), end, f"of the last one all but {uncounted} bytes were counted")

    def each_spread(self, node, route):
        with Program(node, route) as program:
            program.do("hold", 48)
            program.do("thin", 3)
            answer = program.squeeze()
            self.assertLessEqual(answer["after_bytes"], answer["live_bytes"] * MOST_FOR_LIVE_THIN)
            self.assertIs(program.do("check"), True)

    def each_again(self, node, route):
        """There is nothing left for a second one, and a program that goes on has something again."""
        with Program(node, route) as program:
            program.do("hold", 8)
            first = program.squeeze()
            second = program.squeeze()
            self.assertLessEqual(second["after_bytes"], first["after_bytes"] * 1.05)
            program.do("garbage", 40)
            third = program.squeeze()
            self.assertGreater(third["before_bytes"], second["after_bytes"] * 1.5)
            # The page that new objects come from may be one that was used, or one that was not.
            self.assertLessEqual(third["after_bytes"], second["after_bytes"] * 1.05 + HEAP_PAGE)
            self.assertIs(program.do("check"), True)

    def each_parts(self, node, route):
        """Without `heap` the garbage stays."""
        with Program(node, route) as program:
            program.do("hold", 1)
            program.do("garbage", 20)
            answer = program.squeeze(heap=False)
            self.assertGreater(answer["after_bytes"], answer["before_bytes"] * 0.9)
            self.assertEqual(answer["live_bytes"], 0)
            self.assertGreater(program.squeeze(trim=False)["advised_bytes"], 0)

    def each_malloc(self, node, route):
        """Free pages of malloc go back with `trim`, where there is the addon."""
        with Program(node, route) as program:
            program.do("buffers", 64)
            program.squeeze(trim=False)
            memory = program.memory()
            program.squeeze(heap=False)
            given = memory - program.memory()
            if route == "addon":
                self.assertGreater(given, 40 * MEBIBYTE)
            else:
                self.assertLess(given, 4 * MEBIBYTE)
            self.assertIs(program.do("checkBuffers"), True)

    def each_weak(self, node, route):
        """Of weak references, what the program also holds otherwise stays, and nothing else, as V8 has it."""
        with Program(node, route) as program:
            program.do("weak")
            program.squeeze(level="keep")
            # The callback is called in a turn of the event loop after it.
            program.do("busy", 1)
            self.assertEqual(program.do("checkWeak"),
                             {"map": True, "toLiving": True, "toDead": False, "finalized": ["second"]})

    def each_bytecode(self, node, route):
        """`keep` keeps the bytecode of functions that do not run, as often as it is asked for; `all` does not."""
        flag = "--trace-flush-code" if "/22." in node else "--trace-flush-bytecode"
        for level, some in [("keep", False), ("all", route == "addon")]:
            with self.subTest(level=level), Program(node, route, options=[flag]) as program:
                trace = []
                reader = threading.Thread(target=trace.extend, args=(program.process.stdout,))
                reader.start()
                for _ in range(8 if level == "keep" else 1):
                    program.squeeze(level=level)
                program.process.stdin.close()
                reader.join()
                self.assertEqual(any("discarding compiled" in line for line in trace), some)


@for_each_node
class Stress(unittest.TestCase):
    def each_stress(self, node, route):
        """A program that checks all its data, with one squeeze after another."""
        with Program(node, route, name="stress.js") as program:
            program.say()
            squeezes, end = 0, time.monotonic() + (60 if STRESS else 3)
            with program.client() as client:
                # Enough of them also on a slow machine.
                while time.monotonic() < end or squeezes < 6:
                    answer = client.squeeze(level=["keep", "keep", "all"][squeezes % 3])
                    self.assertIsNotNone(answer, program.errors())
                    self.assertIsNone(answer["error"])
                    squeezes += 1
            program.say()
            result = program.answer()
            self.assertEqual(result["wrong"], [])
            self.assertGreater(min(result["checked"].values()), 0, result)
            status, complaints = program.end()
            self.assertEqual((status, complaints), (0, ""))
