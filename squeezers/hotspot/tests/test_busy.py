"""The squeezer is asked when the heap is not quite at its disposal."""

import threading
import unittest

from conformance.case import STRESS
from conformance.program import wait_until
from matrix import for_each_jvm
from program import BUILD, Program


def error_of(program):
    """Of an answer; None where there is none."""
    with program.client() as client:
        return client.squeeze()["error"]


@for_each_jvm
class Busy(unittest.TestCase):
    def each_native_code_holds_the_heap(self, java, collector):
        """It says so, or it waits, or the collector works around it; and it works again afterwards."""
        with Program(java, f"-XX:+Use{collector}GC", arguments=[BUILD / "libcritical.so"]) as program:
            program.do("hold 4")
            self.assertEqual(program.do("critical 1000"), "holding")
            error = error_of(program)
            if error is not None:
                self.assertIn("native code", error)
            wait_until(lambda: program.do("released") == "yes")
            wait_until(lambda: error_of(program) is None)
            self.assertEqual(program.do("check"), "right")
            self.assertEqual(program.quit(), 0)

    def each_locked_page(self, java, collector):
        if collector == "G1":
            self.skipTest("does not apply: any region may be one that G1 compacts into")
        with Program(java, f"-XX:+Use{collector}GC", arguments=[BUILD / "libcritical.so"]) as program:
            program.do("hold 4")
            self.assertEqual(program.do("lock"), "locked")
            for _ in range(2):
                self.assertIn("locked", error_of(program))
                self.assertEqual(program.do("garbage 100"), "made")
            self.assertEqual(program.do("check"), "right")
            self.assertEqual(program.quit(), 0)

    def each_collections_all_the_time(self, java, collector):
        """The program makes garbage, and so collects, while it is asked."""
        with Program(java, f"-XX:+Use{collector}GC", "-Xmx48m") as program:
            program.do("hold 10")
            done = threading.Event()
            answers = []

            def ask():
                with program.client() as client:
                    while not done.is_set():
                        answers.append(client.squeeze()["error"])

            thread = threading.Thread(target=ask)
            thread.start()
            # Until two of them have met, which a busy machine puts off.
            for turn in range(100):
                self.assertEqual(program.do("garbage 300"), "made")
                if turn >= 2 and len(answers) >= 2:
                    break
            done.set()
            thread.join()
            self.assertEqual(set(answers), {None})
            self.assertEqual(program.do("check"), "right")
            self.assertEqual(program.quit(), 0)

    def each_end_in_the_middle_of_a_squeeze(self, java, collector):
        for _ in range(3 if STRESS else 1):
            with Program(java, f"-XX:+Use{collector}GC") as program:
                program.do("hold 20")
                with program.client() as client:
                    client.send(b'{"squeeze":{}}\n' * 3)
                    self.assertEqual(program.quit(), 0)
                self.assertFalse(program.socket.exists())
                self.assertEqual(program.errors(), "")
