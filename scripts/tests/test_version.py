"""What names the version of the workspace names the same one."""

import re
import tomllib
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
VERSION = tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["package"]["version"]


def commands(document):
    """The lines of the first block of code in which packages are installed."""
    block = re.search(r"^    apt install .*\n(?:    .*\n)*", (ROOT / document).read_text(), re.MULTILINE)
    return [line.removeprefix("    ") for line in block[0].splitlines()]


class Version(unittest.TestCase):
    def test_changes_are_listed_below_it(self):
        heading = re.search(r"^## (.*)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)[1]
        self.assertRegex(heading, rf"^{re.escape(VERSION)} (\(unreleased\)|- \d{{4}}-\d\d-\d\d)$")

    def test_the_short_way_in_is_part_of_the_long_one(self):
        """packaging/test.sh does what the long one says."""
        short, long = commands("README.md"), commands("packaging/README.md")
        self.assertEqual(len(short), 3)
        self.assertEqual([command for command in long if command in short], short)
        self.assertEqual(set(re.findall(r"_([^_ ]+)_amd64\.deb", short[0])), {VERSION})
        # The one that is left makes the file that the README only describes.
        (file,) = set(long) - set(short)
        self.assertIn(re.fullmatch(r"echo '(.*)' > hello\.py", file)[1], (ROOT / "README.md").read_text())


if __name__ == "__main__":
    unittest.main()
