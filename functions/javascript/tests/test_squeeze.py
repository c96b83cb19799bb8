"""Functions with the squeezer of squeezers/v8: what they hold stays, and the answers are right."""

import json
import os
import pathlib
import socket
import tempfile
import unittest

from function import FOLDER, PATIENCE_SECONDS, Function, definition, problems

SQUEEZER = os.environ["JAVASCRIPT_SQUEEZER"]
NAMES = sorted(path.parent.name for path in FOLDER.glob("*/function.toml"))


def squeeze(path):
    """What a squeezer answers to a request to give memory back."""
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(PATIENCE_SECONDS)
        client.connect(str(path))
        with client.makefile("rb") as lines:
            hello = json.loads(lines.readline())
            client.sendall(b'{"squeeze":{}}\n')
            return hello, json.loads(lines.readline())


class Squeeze(unittest.TestCase):
    def test_answers_are_right_before_and_after(self):
        self.assertEqual(len(NAMES), 12)
        for name in NAMES:
            with self.subTest(name=name), tempfile.TemporaryDirectory() as directory:
                path, known = pathlib.Path(directory, "squeezer.sock"), definition(name)
                variables = {"NODE_OPTIONS": f"--require {SQUEEZER}", "SQUEEZER_SOCKET": str(path)}
                with Function(name, **variables) as function:
                    function.init()
                    for _ in range(3):
                        for _ in range(3):
                            status, answer = function.run(**known["request"])
                            self.assertEqual((status, problems(known["check"], answer)), (200, []))
                        hello, freed = squeeze(path)
                        self.assertEqual((hello["collector"], freed["error"]), ("addon", None))
                        self.assertLessEqual(freed["live_bytes"], freed["after_bytes"])
                        self.assertLess(freed["after_bytes"], freed["before_bytes"])

    def test_the_ledger_outlives_a_squeeze(self):
        with tempfile.TemporaryDirectory() as directory:
            path = pathlib.Path(directory, "squeezer.sock")
            variables = {"NODE_OPTIONS": f"--require {SQUEEZER}", "SQUEEZER_SOCKET": str(path)}
            with Function("data-analysis", **variables) as function:
                function.init()
                slips = [function.run(count=1000, seed=seed)[1]["all"] for seed in (1, 2, 3)]
                squeeze(path)
                last = function.run(count=1, seed=4)[1]
                self.assertEqual(last["ledger"]["slips"], 3001)
                self.assertEqual(last["ledger"]["paid_cents"],
                                 sum(part["total_cents"] for part in slips) + last["all"]["total_cents"])
