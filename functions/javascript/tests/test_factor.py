"""Factors of numbers that are made of primes, which a sieve has found."""

import random

import function


def sieve(end):
    prime = bytearray([1]) * end
    prime[:2] = b"\0\0"
    for number in range(2, int(end ** 0.5) + 1):
        if prime[number]:
            prime[number * number::number] = bytes(len(range(number * number, end, number)))
    return [number for number in range(end) if prime[number]]


class Factor(function.FunctionTest):
    name = "factor"
    wrong = [({"number": "0"}, "number"), ({"number": "-7"}, "number"), ({"number": "1" * 21}, "number"),
             ({"number": "7x"}, "number"), ({"number": 7}, "number"), ({"number": ""}, "number")]

    def expect(self, number, factors):
        self.assertEqual(self.answer(number=str(number))["factors"], [str(factor) for factor in factors], number)

    def test_small_numbers_by_division(self):
        primes = sieve(100)
        for number in range(1, 300):
            rest, factors = number, []
            for prime in primes:
                while rest % prime == 0:
                    factors.append(prime)
                    rest //= prime
            self.expect(number, factors + [rest] * (rest > 1))

    def test_products_of_primes(self):
        primes, draw = sieve(3_000_000), random.Random(4)
        for count, below in ((2, 3_000_000), (3, 2_000_000), (6, 2_000), (10, 100)):
            for _ in range(5):
                factors = sorted(draw.choice([prime for prime in primes if prime < below]) for _ in range(count))
                number = 1
                for factor in factors:
                    number *= factor
                self.expect(number, factors)

    def test_what_deceives_simpler_tests(self):
        self.expect(2 ** 64 + 1 - 1, [2] * 64)
        self.expect(561, [3, 11, 17])
        self.expect(3215031751, [151, 751, 28351])
        self.expect(4294967297, [641, 6700417])
        self.expect(18446744073709551615, [3, 5, 17, 257, 641, 65537, 6700417])
        self.expect(2 ** 61 - 1, [2 ** 61 - 1])
        self.expect(1_000_003 ** 3, [1_000_003] * 3)
