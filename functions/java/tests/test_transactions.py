"""Transactions, against a company that is kept in other tables."""

import hashlib

from company import Company
from function import FunctionTest


class TransactionsTest(FunctionTest):
    name = "transactions"

    def test_what_comes_of_transactions_one_call_after_the_other(self):
        company = Company()
        for count, seed in ((1, 0), (3000, 1), (3000, 2), (5000, 101), (10_000, 101), (100, 3)):
            results = company.run(count, seed)
            answer = self.run_with(count=count, seed=seed)
            self.assertEqual(answer["ordered_cents"], sum(cents for kind, cents, _ in results if kind == "NEW_ORDER"))
            self.assertEqual(answer["paid_cents"], sum(cents for kind, cents, _ in results if kind == "PAYMENT"))
            self.assertEqual(answer["open_orders"], sum(len(queue) for queues in company.open for queue in queues))
            lines = "".join(f"{line}\n" for _, _, line in results)
            self.assertEqual(answer["sha256"], hashlib.sha256(lines.encode()).hexdigest())
        self.assertGreater(company.pushed_out, 0)

    def test_wrong_arguments(self):
        self.assert_refused("count has to be", count=0)
        self.assert_refused("count has to be", count=200_001)
        self.assert_refused("seed has to be", seed="x")
