"""Run by scripts/test-function.sh inside the image, with its interpreter and packages."""

from function_test import FunctionTest


class HtmlTest(FunctionTest):
    def test_the_page_has_every_item(self):
        answer = self.run_with(username="squeezy", items=1000).json
        page = answer["html"]
        self.assertEqual(page.count('<tr class="item">'), 1000)
        self.assertIn("<title>1000 items for squeezy</title>", page)
        self.assertIn(f"{answer['total_cents'] / 100:.2f}</td></tr></tfoot>", page)

    def test_names_are_escaped(self):
        page = self.run_with(username="<b>", items=0).json["html"]
        self.assertIn("&lt;b&gt;", page)
        self.assertNotIn("<b>", page)

    def test_wrong_arguments_are_an_error_and_the_next_run_works(self):
        for value in ({"items": -1}, {"items": "many"}, {"items": True}, {"username": ""}):
            answer = self.run_with(**value)
            self.assertEqual(answer.status_code, 502, value)
            self.assertIn("ValueError", answer.json["error"])
        self.assertEqual(self.run_with(items=3).json["items"], 3)
