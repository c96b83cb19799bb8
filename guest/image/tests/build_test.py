"""What the tests of guest/image/build.sh with OCI images share.

They need root, skopeo, umoci, bwrap, erofs-utils and zstd. Run them with:
python3 -m unittest discover guest/image/tests
"""

import os
import pathlib
import shutil
import subprocess
import tempfile
import time
import tomllib
import unittest

from oci_image import Layout, entry

CHECKOUT = pathlib.Path(__file__).resolve().parents[3]
PROGRAM = entry("bin/serve", b"#!/bin/sh\n", mode=0o755)
# Seconds.
TIMEOUT = 600


class BuildTest(unittest.TestCase):
    """A copy of the scripts, so that neither the checkout's build/ nor the cache is touched."""

    def setUp(self):
        directory_ = tempfile.TemporaryDirectory()
        self.addCleanup(directory_.cleanup)
        self.place = pathlib.Path(directory_.name)
        ignore = shutil.ignore_patterns("tests", "__pycache__")
        shutil.copytree(CHECKOUT / "guest/image", self.place / "checkout/guest/image", ignore=ignore)
        shutil.copytree(CHECKOUT / "scripts", self.place / "checkout/scripts", ignore=ignore)
        self.images = self.place / "checkout/build/images"
        self.environment = {"PATH": os.environ["PATH"], "SQUEEZY_CACHE": str(self.place / "cache")}
        self.input = self.place / "input"
        self.input.mkdir()

    def build(self, path, *options):
        """Run build.sh; return its status, standard output and standard error."""
        result = subprocess.run(
            [self.place / "checkout/guest/image/build.sh", *options, path],
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=TIMEOUT,
            check=False,
        )
        return result.returncode, result.stdout, result.stderr

    def make(self, layers, name="image", **options):
        """Make a layout; return its path."""
        return Layout(self.input / name, layers, **options).path

    def unpacked(self, path):
        """Convert an image; return the directory of its files, and its definition."""
        status, said, error = self.build(path, "--tree")
        self.assertEqual((status, error), (0, ""), said)
        definition = tomllib.loads((self.images / f"{path.stem}.toml").read_text())
        return pathlib.Path(said.splitlines()[-1]), definition

    def refused(self, path, *words):
        """Convert an image that must fail with one line, and leave nothing."""
        status, said, error = self.build(path)
        self.assertEqual(status, 1, said)
        self.assertEqual(len(error.splitlines()), 1, error)
        self.assertTrue(error.startswith("build.sh: "), error)
        self.assertLess(len(error), 600, error)
        for word in words:
            self.assertIn(word, error)
        self.assert_nothing_left()

    def assert_nothing_left(self):
        """Of a build that failed there are logs and empty directories."""
        cache = self.place / "cache"
        empty = {"base", "erofs", "trees"}
        kept = {cache / "image", *(cache / "image" / name for name in empty)}
        left = [file for file in cache.rglob("*") if not {"logs", "locks"} & set(file.parts) and file not in kept]
        self.assertEqual(left, [])
        self.assertFalse(any(self.images.glob("*")))

    def wait_until(self, condition):
        deadline = time.monotonic() + TIMEOUT
        while not condition():
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.01)
