"""Programs that check all they store while their memory is given back all the time."""
import json
import os
import time

from conformance.case import STRESS
from conformance.client import Client
from support import FOLDER, ProgramTest

SECONDS = 60 if STRESS else 2

WORKLOAD = os.path.join(FOLDER, "tests", "workload.py")


class Stress(ProgramTest):
    def run_workload(self, **environment):
        """Starts the workload, and squeezes until the time is over; returns the program and the answers."""
        program = self.start(f"import runpy; runpy.run_path({WORKLOAD!r}, run_name='__main__')", **environment)
        program.line()
        answers = []
        limit = time.monotonic() + SECONDS
        with Client(self.path) as client:
            while time.monotonic() < limit or len(answers) < 5:
                answers.append(client.squeeze(level=("keep", "all")[len(answers) % 2]))
                self.assert_answer(answers[-1])
        return program, answers

    def wrong(self, program):
        program.say()
        return json.loads(program.line())

    def assert_all_right(self, program):
        self.assertEqual(self.wrong(program), [])
        self.assert_ends(program)

    def test_pymalloc(self):
        program, _ = self.run_workload(PYTHONMALLOC="pymalloc")
        self.assert_all_right(program)

    def test_malloc(self):
        program, answers = self.run_workload(PYTHONMALLOC="malloc")
        self.assertGreater(sum(answer["advised_bytes"] for answer in answers), 0)
        self.assert_all_right(program)

    def test_checked_allocator(self):
        """Python's own checks of what is written beyond a block, or after it was freed."""
        for allocator in ("pymalloc_debug", "malloc_debug") if STRESS else ("pymalloc_debug",):
            program, _ = self.run_workload(PYTHONMALLOC=allocator, SQUEEZER_EXPERIMENTAL="1")
            self.assert_all_right(program)

    def test_free_pools(self):
        program, answers = self.run_workload(PYTHONMALLOC="pymalloc", SQUEEZER_EXPERIMENTAL="1")
        self.assertGreater(sum(answer["advised_bytes"] for answer in answers), 0)
        self.assert_all_right(program)

    def test_the_workload_notices_memory_that_is_taken_away(self):
        program = self.start(f"import runpy; runpy.run_path({WORKLOAD!r}, run_name='__main__')",
                             PYTHONMALLOC="pymalloc")
        program.line()
        program.say("corrupt")
        try:
            wrong = self.wrong(program)
        except (AssertionError, BrokenPipeError):
            return  # it has crashed
        self.assertNotEqual(wrong, [])
