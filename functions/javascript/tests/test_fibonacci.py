"""Fibonacci numbers against the law F(2n) = F(n) (2 F(n+1) - F(n)), which takes no single steps."""

import sys

import function

# Python reads no longer numbers than of 4300 digits unless it is told to.
sys.set_int_max_str_digits(20_000)


def pair(number):
    """F(number) and F(number + 1)."""
    if number == 0:
        return 0, 1
    low, high = pair(number // 2)
    even, odd = low * (2 * high - low), low * low + high * high
    return (odd, even + odd) if number % 2 else (even, odd)


class Fibonacci(function.FunctionTest):
    name = "fibonacci"
    wrong = [({"number": -1}, "number"), ({"number": 50_001}, "number"), ({"number": 1.5}, "number"),
             ({"number": "10"}, "number")]

    def test_the_first_ones(self):
        known = ["0", "1", "1", "2", "3", "5", "8", "13", "21", "34", "55"]
        self.assertEqual([self.answer(number=number)["value"] for number in range(11)], known)

    def test_large_ones(self):
        for number in (93, 300, 4_999, 20_000, 50_000):
            self.assertEqual(int(self.answer(number=number)["value"]), pair(number)[0], number)
