"""As python3 -m unittest, but with SQUEEZY_NO_SKIP=1, as in CI, a test that cannot run here fails.

One that has nothing to test skips all the same: its reason begins with "does not apply: ".
"""

import os
import sys
import unittest


class Result(unittest.TextTestResult):
    def addSkip(self, test, reason):
        if os.environ.get("SQUEEZY_NO_SKIP") != "1" or reason.startswith("does not apply: "):
            super().addSkip(test, reason)
            return
        try:
            raise AssertionError(f"this test cannot run here, and SQUEEZY_NO_SKIP=1: {reason}")
        except AssertionError:
            self.addFailure(test, sys.exc_info())


class Runner(unittest.TextTestRunner):
    resultclass = Result


if __name__ == "__main__":
    # As of -m: tests are found where this is started.
    sys.path[0] = os.getcwd()
    unittest.main(module=None, testRunner=Runner)
