"""How Sphinx makes a site of the repository's documents, from where they are (`make site`).

The documents are written for a code host. Links to directories, which only that understands, and the table of
contents, which only a site needs, are put right in their text while it is read.
"""

import pathlib
import re
import shutil
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[2]
INDEX = "docs/README"


def documents():
    """Return the names of all Markdown files that git knows or would take, without their suffix."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "*.md"]
    names = subprocess.run(command, check=True, capture_output=True, text=True, cwd=ROOT).stdout.split("\0")
    return sorted(name.removesuffix(".md") for name in names if name and (ROOT / name).exists())


project = "Squeezy"
html_title = "Squeezy"
root_doc = "README"
extensions = ["myst_parser"]
myst_heading_anchors = 6
include_patterns = [f"{name}.md" for name in documents()]
exclude_patterns = ["build", "target", ".git"]
html_theme = "furo"
html_show_copyright = False
html_show_sourcelink = False
html_copy_source = False
html_use_index = False
# Texts are the same as on a code host.
smartquotes = False
# Indented code has no language.
highlight_language = "none"

LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)\s:#]+?)/?(#[^)\s]*)?\)")
ENTRY = re.compile(r"- \[(.*)\]\((.*)\.md\)$")


def with_links_to_files(text, directory):
    """Link to the README of a directory, or not at all where there is none: the site is not the source tree."""

    def replaced(match):
        image, label, path, anchor = match.groups()
        if image or not (directory / path).is_dir():
            return match[0]
        return f"[{label}]({path}/README.md{anchor or ''})" if (directory / path / "README.md").exists() else label

    return LINK.sub(replaced, text)


def contents():
    """Return the index's headings, each with its (title, document)."""
    parts = []
    for line in (ROOT / f"{INDEX}.md").read_text(encoding="utf-8").splitlines():
        if line.startswith("## "):
            parts.append((line[3:], []))
        elif parts and (entry := ENTRY.match(line)):
            name = (ROOT / "docs" / entry[2]).resolve().relative_to(ROOT)
            parts[-1][1].append((entry[1], str(name)))
    return parts


def below(document, listed):
    """Return the documents that are not listed in the index and whose nearest README that is, is this document."""

    def parent(name):
        readmes = (str(directory / "README") for directory in pathlib.PurePath(name).parents)
        return next((readme for readme in readmes if readme in listed), None)

    return [name for name in documents() if name not in listed and parent(name) == document]


def table_of_contents(entries, caption=""):
    """Return MyST's directive for documents, each with a title or their own."""
    lines = [f"{title} </{name}>" if title else f"/{name}" for title, name in entries]
    options = [":hidden:", *([f":caption: {caption}"] if caption else [])]
    return "\n".join(["", "```{toctree}", *options, *lines, "```", ""])


def read(_, name, source):
    """Adapt a document's text to the site."""
    text = with_links_to_files(source[0], (ROOT / name).parent)
    parts = contents()
    if name == root_doc:
        for caption, entries in parts:
            text += table_of_contents([entry for entry in entries if entry[1] != root_doc], caption)
        text += table_of_contents([("All documents", INDEX)])
    else:
        listed = {document for _, entries in parts for _, document in entries}
        if entries := below(name, listed):
            text += table_of_contents([("", entry) for entry in entries])
    source[0] = text


def finished(app, error):
    """Make the front page the one that a server shows for the directory."""
    site = pathlib.Path(app.outdir)
    if not error:
        shutil.copyfile(site / "README.html", site / "index.html")


def setup(app):
    """Tell Sphinx what to call."""
    app.connect("source-read", read)
    app.connect("build-finished", finished)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
