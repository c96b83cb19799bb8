"""Each function answers the request of its function.toml as that says, again and again."""

import unittest

from function import FUNCTIONS, Process, definition


class DefinitionTest(unittest.TestCase):
    def test_each_function_answers_its_request(self):
        self.assertEqual(len(FUNCTIONS), 8)
        for name in FUNCTIONS:
            with self.subTest(name):
                self.answers(name)

    def answers(self, name):
        process = Process(name)
        self.addCleanup(process.end)
        self.assertEqual(process.post("/init", {}), (200, {"ok": True}))
        request, check = definition(name)["request"], definition(name)["check"]
        for _ in range(3):
            status, answer = process.post("/run", request)
            self.assertEqual(status, 200, answer)
            for part in check["contains"]:
                self.assertIn(part, answer[check["field"]])
