"""Sums of a product of matrices, which follow from its factors without multiplying them."""

import function
from oracle import draws


class Matrix(function.FunctionTest):
    name = "matrix"
    wrong = [({"size": 0}, "size"), ({"size": 513}, "size"), ({"size": "large"}, "size"), ({"seed": 0}, "seed"),
             ({"seed": 1 << 31}, "seed")]

    def test_sums_of_rows_columns_and_the_diagonal(self):
        for size, seed in ((1, 1), (2, 7), (33, 2_000_000_000), (256, 42)):
            draw = draws(seed)
            a, b = ([[draw(1000) for _ in range(size)] for _ in range(size)] for _ in range(2))
            answer = self.answer(size=size, seed=seed)
            rows_of_b = [sum(row) for row in b]
            columns_of_a = [sum(column) for column in zip(*a)]
            self.assertEqual(answer["row_sums"], [sum(x * y for x, y in zip(row, rows_of_b)) for row in a])
            self.assertEqual(answer["column_sums"], [sum(x * y for x, y in zip(column, columns_of_a)) for column in zip(*b)])
            self.assertEqual(answer["trace"], sum(x * y for row, column in zip(a, zip(*b)) for x, y in zip(row, column)))
