"""What holds for every example; linked into their tests."""

import json

from example import DEFINITION, MARKER, ServerTest


class OpenWhiskTest(ServerTest):
    def test_the_request_of_a_load_is_answered_correctly(self):
        request, check = DEFINITION["request"], DEFINITION["check"]
        self.assertEqual(self.init(name="hello", main="main", binary=False, env={})[0], 200)
        for count in (1, 2):
            status, answer = self.run_with(**request)
            self.assertEqual(status, 200, answer)
            for part in check["contains"]:
                self.assertIn(part, answer[check["field"]])
            self.assertEqual(self.said(), [MARKER * count] * 2)

    def test_init_comes_first_and_once(self):
        self.assertEqual(self.run_with()[0], 409)
        self.assertEqual(self.said(), [MARKER] * 2)
        self.assertEqual(self.init()[0], 200)
        self.assertEqual(self.init()[0], 403)

    def test_bodies_that_are_no_object(self):
        self.init()
        for body in (b"[]", b"1", b"null", b"", b'{"value": []}', b'{"value": null', b'{"value": "x"}'):
            status, answer = self.request("POST", "/run", body)
            self.assertEqual(status, 400, body)
            self.assertIn("JSON object", answer["error"])
        self.assertEqual(self.run_with()[0], 200)

    def test_what_is_too_large_or_nowhere_is_refused(self):
        self.init()
        body = json.dumps({"value": {"text": "x" * (2 << 20)}})
        self.assertEqual(self.request("POST", "/run", body)[0], 413)
        status, answer = self.request("POST", "/stop", b"{}")
        self.assertEqual((status, "error" in answer), (404, True))
        self.assertEqual(self.run_with()[0], 200)

    def test_an_action_that_fails_is_an_answer(self):
        self.init()
        status, answer = self.run_with(name=1)
        self.assertEqual(status, 502)
        self.assertIn("name has to be a string", answer["error"])
        self.assertEqual(self.run_with(name="b")[1]["greeting"], "Hello, b!")
