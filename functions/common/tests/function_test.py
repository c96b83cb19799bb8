"""What the tests of functions share, and the program that runs one, which comes from standard input:
scripts/test-function.sh.
"""

import sys
import unittest

from server import app


class FunctionTest(unittest.TestCase):
    """A function behind its server, after /init."""

    @classmethod
    def setUpClass(cls):
        cls.client = app.test_client()
        cls.client.post("/init", json={"value": {}})

    def run_with(self, **value):
        """POST value to /run; return the answer."""
        return self.client.post("/run", json={"value": value})


if __name__ == "__main__":
    # What the test imports: the image does not have this file, and is not written to.
    sys.modules["function_test"] = sys.modules["__main__"]
    exec(compile(sys.stdin.read(), "<stdin>", "exec"))
    unittest.main(buffer=True)
