"""A page, read by Python's parser of HTML, against the offers made once more."""

import html.parser
import json
import subprocess

import function
from oracle import draws

CATEGORIES = ["Books & maps", "Garden", "Kitchen", "Music", "Tools"]


class Page(html.parser.HTMLParser):
    """The texts of the elements of a page, by element."""

    def __init__(self, text):
        super().__init__()
        self.open, self.texts = [], {}
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attributes):
        if tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag):
        if self.open.pop() != tag:
            raise AssertionError(f"{tag} is closed and was not open")

    def handle_data(self, data):
        if self.open:
            self.texts.setdefault(self.open[-1], []).append(data)


class DynamicHtml(function.FunctionTest):
    name = "dynamic-html"
    wrong = [({"username": ""}, "username"), ({"username": ["x"]}, "username"), ({"offers": -1}, "offers"),
             ({"offers": 20_001}, "offers"), ({"seed": "x"}, "seed")]

    def test_each_offer_is_in_its_place(self):
        for username, count, seed in (("squeezy", 0, 1), ("Ann", 500, 9), ("<b>'\"&amp;", 20, 1_000_000)):
            draw, offers, reduced = draws(seed), {category: [] for category in CATEGORIES}, 0
            for number in range(1, count + 1):
                cents, category = 1 + draw(100_000), CATEGORIES[draw(5)]
                offers[category].append((f"{category} {number}", cents))
                reduced += draw(10) == 0
            expected = [offer for category in CATEGORIES for offer in offers[category]]
            answer = self.answer(username=username, offers=count, seed=seed)
            page = Page(answer["html"])
            self.assertEqual(page.texts["title"], [f"{count} offers for {username}"])
            self.assertEqual(page.texts["h2"], CATEGORIES)
            self.assertEqual(page.texts.get("a", []), [name for name, _ in expected])
            self.assertEqual(page.texts.get("b", []), [f"{cents / 100:.2f}" for _, cents in expected])
            self.assertEqual(page.texts.get("em", []), [f"reduced for {username}"] * reduced)
            self.assertEqual(page.texts["p"], [f"{sum(cents for _, cents in expected) / 100:.2f}"])
            self.assertEqual(answer["total"], page.texts["p"][0])

    def test_a_template_that_is_wrong_is_refused(self):
        for source, values, complaint in (("{{#a}}x", {}, "does not close a"), ("{{/a}}", {}, "not open"),
                                          ("{{#a}}{{#b}}{{/a}}{{/b}}", {}, "not open"),
                                          ("{{a}}", {"b": 1}, "needs a"), ("{{toString}}{{a}}", {"b": 1}, "needs a")):
            code = (f"require({json.dumps(str(function.FOLDER / 'dynamic-html/template'))})"
                    f".compile({json.dumps(source)})({json.dumps(values)})")
            ended = subprocess.run([function.NODE, "-e", code], capture_output=True, text=True,
                                   timeout=function.PATIENCE_SECONDS)
            self.assertEqual(ended.returncode, 1, source)
            self.assertIn(complaint, ended.stderr)
