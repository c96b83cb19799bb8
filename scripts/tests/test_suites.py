"""Tests of scripts/suites.py with shell scripts for suites."""

import contextlib
import io
import signal
import subprocess
import sys
import tempfile
import time
import unittest
import unittest.mock
from pathlib import Path

SCRIPTS = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(SCRIPTS))
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
        return [suite.name for suite in failed], printed.getvalue()

    def test_who_fails_is_named_and_the_others_run(self):
        failed, printed = self.run_all({"a": "exit 3", "b": "echo out; echo err >&2", "c": "kill -9 $$"}, 1)
        self.assertEqual(failed, ["a", "c"])
        self.assertIn("--- a: FAILED (3)", printed)
        self.assertRegex(printed, r"--- b\n +\d+\.\d out\n +\d+\.\d err\n--- b: ok")

    def test_no_more_run_at_a_time_than_may(self):
        at_most_two = "[ $(ls -d running* | wc -l) -le 2 ] || exit 1"
        # With four at a time each waits for the others, however long they take to start.
        for looks, at_once in (3, 2), (600, 4):
            script = f"mkdir running-$0; for _ in $(seq {looks}); do {at_most_two}; sleep 0.1; done; rmdir running-$0"
            failed, _ = self.run_all({name: script.replace("$0", name) for name in "abcde"}, at_once)
            self.assertEqual(failed != [], at_once > 2)

    def interrupted(self, script):
        """The status of a suite that is told to end once it has said something; nothing of it is left."""
        suite = self.suite("a", script)
        suite.start()
        end = time.monotonic() + 60
        while not suite.lines and time.monotonic() < end:
            time.sleep(0.01)
        suite.end()
        suite.reader.join(timeout=5)
        self.assertFalse(suite.reader.is_alive())
        return suite.process.returncode

    def test_what_is_interrupted_leaves_nothing(self):
        self.assertEqual(self.interrupted("sleep 100 & echo; wait"), -signal.SIGTERM)
        with unittest.mock.patch.object(suites, "PATIENCE", 0.2):
            self.assertEqual(self.interrupted("trap '' TERM; sleep 100 & echo; wait"), -signal.SIGKILL)

    def test_what_is_interrupted_may_clean_up(self):
        status = self.interrupted("trap 'rm file; exit 7' TERM; : >file; sleep 100 & echo; wait")
        self.assertEqual(status, 7)
        self.assertFalse(Path(self.directory.name, "file").exists())

    def test_why_it_failed_is_said_again_at_the_end(self):
        long = "for line in $(seq 100); do echo line $line; done; exit 1"
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed), self.assertRaises(SystemExit) as ended:
            suites.run_all([self.suite("long", long), self.suite("right", "echo right")], [])
        self.assertEqual(ended.exception.code, "failed: long")
        end = printed.getvalue().split("2 suites after", 1)[1]
        self.assertRegex(end, r"--- long has failed, its last lines:\n +\d+\.\d line 61\n")
        self.assertRegex(end, r" line 100\n\Z")

    def test_scripts_are_named_by_their_commands(self):
        for status, words in (0, "ok after"), (1, "FAILED"):
            command = f"sh -c 'pwd; exit {status}'"
            done = subprocess.run(
                [sys.executable, "-B", SCRIPTS / "test-scripts.py", command], capture_output=True, text=True, timeout=60
            )
            self.assertIn(f"--- {command}\n", done.stdout)
            self.assertIn(f" {SCRIPTS.parent}\n", done.stdout)
            self.assertIn(f"--- {command}: {words}", done.stdout)
            self.assertEqual(done.returncode, status)


if __name__ == "__main__":
    unittest.main()
