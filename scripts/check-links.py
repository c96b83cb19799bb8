#!/usr/bin/env python3
"""Check that every relative link in the repository's Markdown files leads somewhere.

Prints FILE:LINE: LINK for each one that does not, and fails when there is one.
"""

import pathlib
import re
import subprocess
import sys

LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)(?:\s+\"[^\"]*\")?\)")
HEADING = re.compile(r"#{1,6}\s+(.*?)\s*#*$")


def lines_outside_code(path):
    """Yield (number, line) of a Markdown file, without its fenced code blocks."""
    fenced = False
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if line.lstrip().startswith(("```", "~~~")):
            fenced = not fenced
        elif not fenced:
            yield number, line


def anchors(path):
    """Return the anchors that GitHub makes for the headings of a Markdown file."""
    found = {}
    for _, line in lines_outside_code(path):
        if heading := HEADING.match(line):
            text = re.sub(r"[^\w\- ]", "", heading[1].lower()).replace(" ", "-")
            found[text] = found.get(text, -1) + 1
    return {f"{text}-{n}" if n else text for text, count in found.items() for n in range(count + 1)}


def problem(path, link):
    """Return whether a link of the file leads nowhere."""
    if re.match(r"[a-z]+:", link):
        return False
    name, _, anchor = link.partition("#")
    target = path.parent / name if name else path
    if not target.exists():
        return True
    return bool(anchor) and target.suffix == ".md" and anchor not in anchors(target)


def main():
    """Check every Markdown file that git knows or would take."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "*.md"]
    names = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split("\0")
    bad = 0
    for path in sorted(pathlib.Path(name) for name in names if name and pathlib.Path(name).exists()):
        for number, line in lines_outside_code(path):
            for link in LINK.findall(re.sub(r"`[^`]*`", "", line)):
                if problem(path, link):
                    print(f"{path}:{number}: {link}")
                    bad += 1
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
