"""With SQUEEZY_NO_SKIP=1 nothing that could not be tested passes."""

import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

SCRIPTS = pathlib.Path(__file__).resolve().parent.parent
TESTS = """
import unittest

class Some(unittest.TestCase):
    @unittest.skipIf(True, "{reason}")
    def test_skipped(self):
        self.fail()

    def test_passes(self):
        pass
"""


def run(command, strict, cwd="/"):
    environment = {name: value for name, value in os.environ.items() if name != "SQUEEZY_NO_SKIP"}
    if strict:
        environment["SQUEEZY_NO_SKIP"] = "1"
    return subprocess.run(command, env=environment, cwd=cwd, capture_output=True, text=True, timeout=60)


class Skips(unittest.TestCase):
    def python(self, reason, strict):
        with tempfile.TemporaryDirectory() as directory:
            pathlib.Path(directory, "test_some.py").write_text(TESTS.format(reason=reason))
            return run([sys.executable, "-B", SCRIPTS / "run-unittest.py", "test_some"], strict, directory)

    def test_python(self):
        self.assertIn("OK (skipped=1)", self.python("no root", strict=False).stderr)
        failed = self.python("no root", strict=True)
        self.assertEqual(failed.returncode, 1)
        self.assertIn("no root", failed.stderr)
        self.assertIn("FAILED (failures=1)", failed.stderr)
        self.assertIn("OK (skipped=1)", self.python("does not apply: a newer Python", strict=True).stderr)

    def test_shell(self):
        command = ["bash", "-euc", '. "$0"; skip "no root"; echo went on', SCRIPTS / "common.sh"]
        self.assertEqual(run(command, strict=False).stdout, "skipped: no root\nwent on\n")
        failed = run(command, strict=True)
        self.assertEqual((failed.returncode, failed.stdout), (1, ""))
        self.assertIn("no root", failed.stderr)
