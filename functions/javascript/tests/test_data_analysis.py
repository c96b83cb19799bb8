"""Pay slips, computed once more."""

import random
import statistics

import function
from oracle import draws

DEPARTMENTS = ["engineering", "finance", "marketing", "operations", "research", "sales"]
HEAD = "employee,department,base_cents,overtime_hours,merit_percent\n"


def text(slips):
    return HEAD + "".join(",".join(map(str, slip)) + "\n" for slip in slips)


def pay(slip):
    _, _, base, overtime, merit = slip
    return base + base * overtime // 120 + base * merit // 100


def draw_slips(count, seed):
    draw = draws(seed)
    return [(1 + draw(20_000), DEPARTMENTS[draw(6)], 200_000 + draw(600_000), draw(40), draw(25)) for _ in range(count)]


class DataAnalysis(function.FunctionTest):
    name = "data-analysis"
    wrong = [({"count": 0}, "count"), ({"count": 20_001}, "count"), ({"seed": -1}, "seed"), ({"slips": ""}, "slips"),
             ({"slips": "employee\n1"}, "begin with"), ({"slips": HEAD}, "1 to 20000"),
             ({"slips": HEAD + "1,sales,2,3"}, "line 2 has 4 fields"),
             ({"slips": HEAD + "1,sales,2,3,4\n1,theft,2,3,4"}, "line 3"),
             ({"slips": HEAD + "1,sales,-2,3,4"}, "no whole number"),
             ({"slips": HEAD + "1,sales,200000000,3,4"}, "no whole number"), ({"slips": 5}, "slips")]

    def check(self, answer, pays):
        ordered = sorted(pays)
        self.assertEqual((answer["count"], answer["total_cents"], answer["most_cents"]),
                         (len(pays), sum(pays), ordered[-1]))
        self.assertEqual(answer["median_cents"], statistics.median_low(pays))
        # The smallest that at least nine tenths are not above.
        self.assertEqual(answer["ninetieth_cents"],
                         next(value for index, value in enumerate(ordered) if 10 * (index + 1) >= 9 * len(pays)))
        self.assertAlmostEqual(answer["mean_cents"], statistics.fmean(pays), places=4)
        self.assertAlmostEqual(answer["deviation_cents"], statistics.pstdev(pays), places=4)

    def check_all(self, answer, slips):
        self.check(answer["all"], [pay(slip) for slip in slips])
        self.assertEqual([entry["department"] for entry in answer["departments"]], sorted({slip[1] for slip in slips}))
        for entry in answer["departments"]:
            self.check(entry, [pay(slip) for slip in slips if slip[1] == entry["department"]])

    def test_slips_that_come_along(self):
        draw = random.Random(7)
        slips = [(draw.randrange(20_001), draw.choice(DEPARTMENTS), draw.randrange(100_000_001), draw.randrange(201),
                  draw.randrange(101)) for _ in range(2_000)]
        for part in (slips[:1], slips[:10], slips):
            answer = self.answer(slips=text(part))
            self.check_all(answer, part)
        slope = statistics.linear_regression([slip[3] for slip in slips], [pay(slip) for slip in slips]).slope
        self.assertAlmostEqual(answer["cents_by_overtime_hour"] / slope, 1, places=6)

    def test_slips_that_are_drawn(self):
        for count, seed in ((1, 1), (100, 2), (5_000, 3)):
            self.check_all(self.answer(count=count, seed=seed), draw_slips(count, seed))

    def test_the_ledger_stays_and_is_bounded(self):
        with function.Function(self.name) as own:
            own.init()
            accounts = {}
            for seed in (11, 12, 13, 14):
                slips = draw_slips(4_000, seed)
                for slip in slips:
                    entries = accounts.pop(slip[0], [])
                    accounts[slip[0]] = entries + [pay(slip)]
                    if len(accounts) > 10_000:
                        del accounts[next(iter(accounts))]
                _, answer = own.run(slips=text(slips))
                self.assertEqual(answer["ledger"], {
                    "employees": len(accounts), "slips": sum(map(len, accounts.values())),
                    "paid_cents": sum(map(sum, accounts.values()))})
            self.assertEqual(len(accounts), 10_000)
