#!/usr/bin/env python3
"""Check a built site: every link leads to a file and an anchor there, and no page loads anything from elsewhere.

usage: check.py DIRECTORY

Prints PAGE: PROBLEM for each one, and fails when there is one.
"""

import html.parser
import pathlib
import re
import sys
import urllib.parse

# What a browser loads by itself; everything else is followed by people.
LOADED = {("img", "src"), ("script", "src"), ("source", "src"), ("iframe", "src"), ("object", "data")}
LOADED_LINKS = {"stylesheet", "icon", "preload", "prefetch", "preconnect", "dns-prefetch", "modulepreload", "manifest"}
IN_STYLE = re.compile(r"(?:url\(|@import)\s*['\"]?\s*(https?:|//)")


class Page(html.parser.HTMLParser):
    """The anchors of a page, and what it refers to."""

    def __init__(self, text):
        super().__init__()
        self.anchors, self.links, self.loads = set(), [], []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        """Collect one tag."""
        values = dict(attributes)
        self.anchors.update(value for key in ("id", "name") if (value := values.get(key)))
        for key in ("href", "src", "data"):
            if not (value := values.get(key)):
                continue
            relations = set((values.get("rel") or "").split())
            loaded = (tag, key) in LOADED or (tag == "link" and relations & LOADED_LINKS)
            (self.loads if loaded else self.links).append(value)


def problems(site):
    """Yield (page, problem) of a site."""
    pages = {path: Page(path.read_text(encoding="utf-8")) for path in sorted(site.rglob("*.html"))}
    if not pages:
        yield site, "there are no pages"
    for path, page in pages.items():
        for reference in page.loads + page.links:
            parts = urllib.parse.urlsplit(reference)
            if parts.scheme or parts.netloc:
                if reference in page.loads and parts.scheme != "data":
                    yield path, f"{reference} is loaded from elsewhere"
                continue
            target = (path.parent / urllib.parse.unquote(parts.path)).resolve() if parts.path else path
            if target.is_dir():
                target /= "index.html"
            anchor = urllib.parse.unquote(parts.fragment)
            if not target.is_file() or site not in target.parents:
                yield path, f"{reference} leads nowhere"
            elif anchor and target in pages and anchor not in pages[target].anchors:
                yield path, f"{reference} has no such anchor"
    for path in sorted(site.rglob("*.css")):
        if found := IN_STYLE.search(path.read_text(encoding="utf-8")):
            yield path, f"{found[0]}... is loaded from elsewhere"


def main():
    """Check the site that the command line names."""
    site = pathlib.Path(sys.argv[1]).resolve()
    bad = [f"{path.relative_to(site)}: {problem}" for path, problem in problems(site)]
    print("\n".join(bad), end="\n" if bad else "")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
