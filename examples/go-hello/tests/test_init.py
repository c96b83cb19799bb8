"""What /init takes here."""

from example import ServerTest


class InitTest(ServerTest):
    def test_environment_but_no_code(self):
        status, answer = self.init(code="package main")
        self.assertEqual(status, 400)
        self.assertIn("no code", answer["error"])
        self.assertEqual(self.init(env={"": "no name"})[0], 400)
        self.assertEqual(self.init(env={"SHELF": "a", "ROW": 3})[0], 200)
        self.assertTrue(self.run_with(name="a")[1]["go"].startswith("go1."))
