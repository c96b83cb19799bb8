"""Digits of pi against those that are known, and against another formula, Gauss and Legendre's."""

import decimal

import function


def pi(digits):
    """So many digits behind the point, by the means of Gauss and Legendre, each step of which doubles them."""
    with decimal.localcontext() as context:
        context.prec = digits + 20
        one = decimal.Decimal(1)
        a, b, t, power = one, 1 / decimal.Decimal(2).sqrt(), one / 4, 1
        while abs(a - b) > decimal.Decimal(10) ** -(digits // 2 + 10):
            middle = (a + b) / 2
            a, b, t, power = middle, (a * b).sqrt(), t - power * (a - middle) ** 2, 2 * power
        return str((a + b) ** 2 / (4 * t))[:digits + 2]


class Pi(function.FunctionTest):
    name = "pi"
    wrong = [({"digits": 0}, "digits"), ({"digits": 10_001}, "digits"), ({"digits": "many"}, "digits")]

    def test_digits_that_are_known(self):
        self.assertEqual(self.answer(digits=50)["pi"], "3.14159265358979323846264338327950288419716939937510")
        # Feynman's point: six nines from the 762nd digit on.
        self.assertEqual(self.answer(digits=767)["pi"][2 + 761:], "999999")

    def test_as_many_as_are_asked_for(self):
        for digits in (1, 2, 10, 1_000, 3_999, 10_000):
            self.assertEqual(self.answer(digits=digits)["pi"], pi(digits), digits)
