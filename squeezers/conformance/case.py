"""What tests of squeezers have in common."""

import os
import pathlib
import shutil
import tempfile
import unittest

from conformance.client import NUMBERS, Client
from conformance.program import default_path

STRESS = os.environ.get("SQUEEZY_TEST_STRESS") == "1"


def for_each(variants):
    """Makes test_WHAT_VARIANT of each method each_WHAT(self, *values); `variants` has the values for each name."""

    def decorate(test_case):
        for name in [name for name in dir(test_case) if name.startswith("each_")]:
            each = getattr(test_case, name)
            for variant, values in variants.items():

                def test(self, each=each, values=values):
                    each(self, *values)

                test.__doc__ = each.__doc__
                setattr(test_case, "_".join(filter(None, ["test", name.removeprefix("each_"), variant])), test)
        return test_case

    return decorate


class Case(unittest.TestCase):
    """A test with a folder of its own, whose programs end with it."""

    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="squeezer-test-"))
        self.addCleanup(shutil.rmtree, self.folder)
        self.path = self.folder / "squeezer.sock"

    def ends_with_test(self, program):
        self.addCleanup(program.kill)
        # It removes it itself, unless it is killed.
        self.addCleanup(default_path(program.pid).unlink, missing_ok=True)
        return program

    def assert_answer(self, answer):
        """That it is one, without an error."""
        self.assertEqual(list(answer), [*NUMBERS, "error"])
        self.assertIsNone(answer["error"])
        for number in NUMBERS:
            self.assertIs(type(answer[number]), int, number)
            self.assertIn(answer[number], range(1 << 53), number)

    def assert_serves(self, path, program):
        """That the squeezer of a program is at a path."""
        with Client(path) as client:
            self.assertEqual(client.hello["pid"], program.pid)
            self.assert_answer(client.squeeze())

    def assert_ends(self, program, errors=""):
        self.assertEqual(program.end(), (0, errors))

    def errors_at_end(self, program):
        """What it has written to standard error, when it has ended as it should."""
        status, errors = program.end()
        self.assertEqual(status, 0, errors)
        return errors
