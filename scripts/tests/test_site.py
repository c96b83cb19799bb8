"""What the check of the built site finds."""

import importlib.util
import pathlib
import tempfile
import unittest

CHECK = pathlib.Path(__file__).resolve().parents[1] / "site/check.py"
spec = importlib.util.spec_from_file_location("check", CHECK)
check = importlib.util.module_from_spec(spec)
spec.loader.exec_module(check)


class Site(unittest.TestCase):
    def problems(self, body, style=""):
        """Return the problems of a site whose front page has this body."""
        with tempfile.TemporaryDirectory() as directory:
            site = pathlib.Path(directory).resolve()
            (site / "index.html").write_text(f"<link rel=stylesheet href=style.css><h1 id=top>A</h1>{body}")
            (site / "style.css").write_text(style)
            (site / "docs").mkdir()
            (site / "docs/page.html").write_text("<a href=../index.html#top>up</a><h2 id='a heading'>B</h2>")
            return [problem for _, problem in check.problems(site)]

    def test_a_whole_site_has_no_problem(self):
        links = "<a href='#top'></a><a href='docs/page.html#a%20heading'></a><a href='https://example.com/'></a>"
        self.assertEqual(self.problems(links + "<img src='data:image/png;base64,'>", "a { color: red }"), [])

    def test_links_that_lead_nowhere_are_found(self):
        for link in ["missing.html", "docs/", "../outside.html", "docs/missing.png"]:
            self.assertEqual(self.problems(f"<a href='{link}'></a>"), [f"{link} leads nowhere"])
        self.assertEqual(self.problems("<img src=missing.png>"), ["missing.png leads nowhere"])

    def test_anchors_that_do_not_exist_are_found(self):
        for link in ["#bottom", "docs/page.html#top"]:
            self.assertEqual(self.problems(f"<a href='{link}'></a>"), [f"{link} has no such anchor"])

    def test_what_is_loaded_from_elsewhere_is_found(self):
        for tag in ["script src", "img src", "link rel=stylesheet href", "link rel='preconnect x' href"]:
            for address in ["https://example.com/a", "//example.com/a"]:
                found = self.problems(f"<{tag}='{address}'>")
                self.assertEqual(found, [f"{address} is loaded from elsewhere"], tag)
        for style in ["@import 'https://example.com/a'", "a { src: url(//example.com/font) }"]:
            self.assertEqual(len(self.problems("", style)), 1, style)

    def test_a_site_without_pages_is_none(self):
        with tempfile.TemporaryDirectory() as directory:
            self.assertEqual(len(list(check.problems(pathlib.Path(directory)))), 1)


if __name__ == "__main__":
    unittest.main()
