"""Sorting, against Python's own."""

import hashlib

from function import FunctionTest
from java_random import Random


class SortTest(FunctionTest):
    name = "sort"

    def expected(self, count, seed):
        random = Random(seed)
        records = []
        for _ in range(count):
            group = random.below(1000)
            records.append((group, "".join(chr(97 + random.below(26)) for _ in range(12))))
        return [f"{group} {name}" for group, name in sorted(records)]

    def test_records_are_in_order_and_all_there(self):
        for count, seed in ((1, 0), (2, 5), (5000, 1), (5000, 2), (5000, 2**48 - 1)):
            lines = self.expected(count, seed)
            self.assertEqual(self.run_with(count=count, seed=seed), {
                "summary": f"{count} records from {lines[0]} to {lines[-1]}",
                "median": lines[count // 2],
                "sha256": hashlib.sha256("".join(f"{line}\n" for line in lines).encode()).hexdigest(),
            })

    def test_wrong_arguments(self):
        for count in (0, -1, 200_001, 10**30, 1.5, "10", True, None, [1]):
            self.assert_refused("count has to be a whole number", count=count)
        self.assert_refused("seed has to be", seed=-1)
