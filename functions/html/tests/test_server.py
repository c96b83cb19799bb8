"""Run by scripts/test-function.sh inside the image, with its interpreter and packages."""

import contextlib
import importlib
import io
import os
import sys
import unittest

sys.path.insert(0, os.environ.get("FUNCTION_ROOT", "/function"))

MARKER = "XXX_THE_END_OF_A_WHISK_ACTIVATION_XXX\n"


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
        answer, _, _ = self.post("/init", {"value": {"name": "html", "main": "main"}})
        self.assertEqual(answer.status_code, 200)

    def test_the_page_has_every_item(self):
        self.init()
        value = {"username": "squeezy", "items": 1000}
        answer, out, err = self.post("/run", {"value": value, "activation_id": "a1"})
        self.assertEqual(answer.status_code, 200)
        page = answer.json["html"]
        self.assertEqual(page.count('<tr class="item">'), 1000)
        self.assertIn("<title>1000 items for squeezy</title>", page)
        self.assertIn(f"{answer.json['total_cents'] / 100:.2f}</td></tr></tfoot>", page)
        self.assertEqual((out, err), (MARKER, MARKER))
        self.assertEqual(os.environ["__OW_ACTIVATION_ID"], "a1")

    def test_names_are_escaped(self):
        self.init()
        answer, _, _ = self.post("/run", {"value": {"username": "<b>", "items": 0}})
        self.assertIn("&lt;b&gt;", answer.json["html"])
        self.assertNotIn("<b>", answer.json["html"])

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

    def test_wrong_arguments_are_an_error_and_the_next_run_works(self):
        self.init()
        for value in ({"items": -1}, {"items": "many"}, {"items": True}, {"username": ""}):
            answer, out, err = self.post("/run", {"value": value})
            self.assertEqual(answer.status_code, 502, value)
            self.assertIn("ValueError", answer.json["error"])
            self.assertEqual(out, MARKER)
            self.assertTrue(err.endswith(MARKER))
        answer, _, _ = self.post("/run", {"value": {"items": 3}})
        self.assertEqual(answer.json["items"], 3)

    def test_bodies_that_are_no_object(self):
        self.init()
        for body in ([], 1, {"value": []}):
            answer, out, _ = self.post("/run", body)
            self.assertEqual((answer.status_code, out), (400, MARKER), body)


if __name__ == "__main__":
    unittest.main()
