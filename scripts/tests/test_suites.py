"""Tests of scripts/suites.py with shell scripts for suites."""

import contextlib
import io
import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))
import suites  # noqa: E402


class TestSuites(unittest.TestCase):
    def setUp(self):
        self.directory = tempfile.TemporaryDirectory()
        self.addCleanup(self.directory.cleanup)

    def suite(self, name, script):
        path = Path(self.directory.name) / name
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)
        return suites.Suite(name, [str(path)], self.directory.name)

    def run_all(self, scripts, at_once):
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            failed = suites.run([self.suite(*script) for script in scripts.items()], at_once)
        return failed, printed.getvalue()

    def test_who_fails_is_named_and_the_others_run(self):
        failed, printed = self.run_all({"a": "exit 3", "b": "echo out; echo err >&2", "c": "kill -9 $$"}, 1)
        self.assertEqual(failed, ["a", "c"])
        self.assertIn("--- a: FAILED (3)", printed)
        self.assertRegex(printed, r"--- b\n +\d+\.\d out\n +\d+\.\d err\n--- b: ok")

    def test_no_more_run_at_a_time_than_may(self):
        script = "mkdir running-$0x 2>/dev/null; n=$(ls -d running* | wc -l); [ $n -le 2 ] || exit 1; sleep 0.3; rmdir running-$0x"
        scripts = {name: script.replace("$0x", name) for name in "abcde"}
        self.assertEqual(self.run_all(scripts, 2)[0], [])
        self.assertNotEqual(self.run_all(scripts, 4)[0], [])

    def test_what_is_interrupted_leaves_nothing(self):
        suite = self.suite("a", "sleep 100 & wait")
        suite.start()
        suite.kill()
        suite.reader.join(timeout=5)
        self.assertFalse(suite.reader.is_alive())
        self.assertEqual(suite.process.returncode, -9)


if __name__ == "__main__":
    unittest.main()
