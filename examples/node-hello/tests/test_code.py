"""Code that comes with /init."""

from example import ServerTest


class CodeTest(ServerTest):
    def test_a_function_at_the_top_level(self):
        code = "function main({ a, b }) { return { sum: a + b, shelf: process.env.SHELF }; } // end"
        self.assertEqual(self.init(code=code, env={"SHELF": "3"})[0], 200)
        self.assertEqual(self.run_with(a=1, b=2), (200, {"sum": 3, "shelf": "3"}))

    def test_an_exported_function_under_another_name_that_answers_later(self):
        code = """
            const path = require("node:path");
            exports.later = async () => ({ id: process.env.__OW_ACTIVATION_ID, base: path.basename("/a/b") });
        """
        self.assertEqual(self.init(code=code, main="later")[0], 200)
        for activation in ("a1", "a2"):
            self.assertEqual(self.run_with(activation), (200, {"id": activation, "base": "b"}))

    def test_code_that_is_none_says_so_and_better_code_may_follow(self):
        for value in (
            {"code": "function ("},
            {"code": "const main = 1"},
            {"code": "throw new Error('no')"},
            {"main": "nothing"},
            {"main": "main; process.exit()"},
            {"code": "UEsDBA==", "binary": True},
        ):
            status, answer = self.init(**value)
            self.assertEqual(status, 502, value)
            self.assertIn("cannot be loaded", answer["error"])
        self.assertEqual(self.init(code="const main = () => ({})")[0], 200)
        self.assertEqual(self.run_with(), (200, {}))

    def test_whatever_an_action_does_is_an_answer(self):
        code = """
            const main = async ({ what }) => {
              if (what === "reject") throw new Error("no");
              if (what === "list") return [];
              if (what === "circle") { const a = {}; a.a = a; return a; }
            };
        """
        self.init(code=code)
        for what in ("reject", "list", "circle"):
            self.assertEqual(self.run_with(what=what)[0], 502, what)
        self.assertEqual(self.run_with(), (200, {}))
