"""What each function.toml says of its function."""

import unittest

from function import FOLDER, definition

MEBIBYTE = 1 << 20


class Definitions(unittest.TestCase):
    def test_each_function_has_one_that_is_its_own(self):
        names = sorted(path.parent.name for path in FOLDER.glob("*/index.js"))
        self.assertEqual(len(names), 12)
        for name in names:
            known = definition(name)
            self.assertEqual(known["name"], f"javascript-{name}")
            self.assertEqual(known["command"], ["/function/run.sh", name])
            self.assertEqual(known["image"]["app"], f"../../../build/functions/javascript/{name}")
            memory_bytes = int(known["memory_limit"].removesuffix("M")) * MEBIBYTE
            self.assertEqual(known["environment"]["MEMORY_LIMIT"], str(memory_bytes))
