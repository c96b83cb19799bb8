"""What holds for every function that common/app/server.py serves; linked into their tests."""

import contextlib
import importlib
import io
import os
import sys
import tomllib
import unittest

MARKER = "XXX_THE_END_OF_A_WHISK_ACTIVATION_XXX\n"
DEFINITION = tomllib.loads(os.environ["FUNCTION_DEFINITION"])


class ServerTest(unittest.TestCase):
    def setUp(self):
        sys.modules.pop("server", None)
        self.client = importlib.import_module("server").app.test_client()

    def post(self, path, body):
        """POST body; return the answer and what went to stdout and stderr."""
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            answer = self.client.post(path, json=body)
        return answer, out.getvalue(), err.getvalue()

    def init(self):
        answer, _, _ = self.post("/init", {"value": {"name": "function", "main": "main"}})
        self.assertEqual(answer.status_code, 200)

    def test_the_request_of_a_load_is_answered_correctly(self):
        self.init()
        request, check = DEFINITION["request"], DEFINITION["check"]
        for activation in ("a1", "a2"):
            body = {"value": request, "activation_id": activation}
            answer, out, err = self.post("/run", body)
            self.assertEqual(answer.status_code, 200, answer.text)
            text = answer.json[check["field"]]
            for part in check.get("contains", []):
                self.assertIn(part, text)
            for part in check.get("occurrences", []):
                self.assertEqual(text.count(part["text"]), part["count"], part)
            self.assertEqual((out, err), (MARKER, MARKER))
            self.assertEqual(os.environ["__OW_ACTIVATION_ID"], activation)

    def test_init_comes_first_and_once(self):
        answer, out, _ = self.post("/run", {"value": {}})
        self.assertEqual((answer.status_code, out), (409, MARKER))
        self.init()
        answer, _, _ = self.post("/init", {"value": {}})
        self.assertEqual(answer.status_code, 403)

    def test_init_takes_environment_but_no_code(self):
        answer, _, _ = self.post("/init", {"value": {"code": "def main(a): return a"}})
        self.assertEqual(answer.status_code, 400)
        answer, _, _ = self.post("/init", {"value": {"main": "nothing"}})
        self.assertEqual(answer.status_code, 400)
        answer, _, _ = self.post("/init", {"value": {"env": {"SHELF": "a", "ROW": 3}}})
        self.assertEqual(answer.status_code, 200)
        self.assertEqual((os.environ["SHELF"], os.environ["ROW"]), ("a", "3"))

    def test_bodies_that_are_no_object(self):
        self.init()
        for body in ([], 1, {"value": []}):
            answer, out, _ = self.post("/run", body)
            self.assertEqual((answer.status_code, out), (400, MARKER), body)
        answer = self.client.post("/run", data=b'{"value": ', content_type="application/json")
        self.assertEqual(answer.status_code, 400)
        self.assertIn("JSON object", answer.json["error"])

    def test_what_is_too_large_or_nowhere_is_refused(self):
        self.init()
        answer, out, _ = self.post("/run", {"value": {"text": "x" * (2 << 20)}})
        self.assertEqual((answer.status_code, out), (413, MARKER))
        self.assertIn("exceeds", answer.json["error"])
        answer, _, _ = self.post("/stop", {})
        self.assertEqual(answer.status_code, 404)
        self.assertIn("error", answer.json)
