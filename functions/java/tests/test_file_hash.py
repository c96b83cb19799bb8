"""Hashes, against hashlib."""

import hashlib

from function import FunctionTest


class FileHashTest(FunctionTest):
    name = "file-hash"

    def test_hashes(self):
        for line, lines in (("a", 0), ("a", 1), ("Grüße, 世界 🌍", 1000), ("x" * 1000, 5000)):
            content = f"{line}\n".encode() * lines
            self.assertEqual(self.run_with(line=line, lines=lines),
                             {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()})

    def test_the_hash_of_nothing(self):
        self.assertEqual(self.run_with(lines=0)["sha256"],
                         "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855")

    def test_wrong_arguments(self):
        self.assert_refused("line has to be a string", line="")
        self.assert_refused("line has to be a string", line="x" * 1001)
        self.assert_refused("line has to be a string", line=3)
        self.assert_refused("have to be at most", line="x" * 1000, lines=6000)
