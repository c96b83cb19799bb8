"""One binary for all versions: it asks the same of each, whichever it was built for."""

import os
import pathlib
import subprocess
import tempfile
import unittest

from matrix import NODES, node
from program import environment

BUILD = pathlib.Path(__file__).parents[1] / "build.sh"


def imports(binary):
    listing = subprocess.run(["nm", "--dynamic", "--undefined-only", binary], check=True, capture_output=True, text=True)
    return set(listing.stdout.split())


class Addon(unittest.TestCase):
    def test_headers(self):
        with tempfile.TemporaryDirectory() as directory:
            binaries = {}
            for version, home in NODES.items():
                binaries[version] = pathlib.Path(directory) / version / "squeeze.node"
                headers = os.path.join(home, "include", "node")
                subprocess.run([BUILD, binaries[version].parent], check=True, stdout=subprocess.DEVNULL,
                               env={**os.environ, "NODE_HEADERS": headers})
            first, *others = [imports(binary) for binary in binaries.values()]
            for other in others:
                self.assertEqual(other, first)
            for built, binary in binaries.items():
                for version in NODES:
                    with self.subTest(built=built, version=version):
                        code = f"const a = require('{binary}'); a.collect(false); a.collect(true); a.trim(); console.log('done')"
                        ended = subprocess.run([node(version), "-e", code], env=environment(), capture_output=True, text=True)
                        self.assertEqual((ended.stdout, ended.stderr), ("done\n", ""))

    def test_headers_that_are_none(self):
        with tempfile.TemporaryDirectory() as directory:
            ended = subprocess.run([BUILD, f"{directory}/made"], capture_output=True, text=True,
                                   env={**os.environ, "NODE_HEADERS": directory})
            self.assertEqual(ended.returncode, 1)
            self.assertEqual(ended.stderr, f"build.sh: {directory} has no node_api.h: set NODE_HEADERS to Node's include directory\n")
