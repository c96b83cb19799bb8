"""The wholesale company again, as plain lists and dictionaries: what transactions has to answer."""

import collections

from java_random import Random

KINDS = ["NEW_ORDER"] * 10 + ["PAYMENT"] * 10 + ["ORDER_STATUS", "DELIVERY", "STOCK_LEVEL", "CUSTOMER_REPORT"]
PRICES = [100 + item * 7919 % 9900 for item in range(5000)]


class Company:
    """Four warehouses with ten districts of 150 customers each."""

    def __init__(self):
        self.stock = [[100] * 5000 for _ in range(4)]
        self.open = [[[] for _ in range(10)] for _ in range(4)]
        self.balance = collections.Counter()
        self.payments = collections.defaultdict(list)
        self.last = {}
        # Orders that were delivered because too many were open.
        self.pushed_out = 0

    def run(self, count, seed):
        """Carry out so many transactions; return (kind, cents, line) of each."""
        self.random = Random(seed)
        return [self.transaction() for _ in range(count)]

    def transaction(self):
        kind = KINDS[self.random.below(24)]
        warehouse = self.random.below(4)
        cents, text = getattr(self, kind.lower())(warehouse)
        return kind, cents, f"{kind} {text}"

    def customer(self, warehouse):
        return warehouse, self.random.below(10), self.random.below(150)

    def deliver(self, queue):
        if not queue:
            return 0
        order = queue.pop(0)
        order["delivered"] = True
        self.balance[order["customer"]] += order["cents"]
        return order["cents"]

    def new_order(self, warehouse):
        customer = self.customer(warehouse)
        lines = []
        for _ in range(5 + self.random.below(11)):
            item, quantity = self.random.below(5000), 1 + self.random.below(10)
            left = self.stock[warehouse][item] - quantity
            self.stock[warehouse][item] = left + 91 if left < 10 else left
            lines.append((item, quantity, PRICES[item] * quantity))
        order = {"customer": customer, "lines": lines, "cents": sum(line[2] for line in lines), "delivered": False}
        queue = self.open[warehouse][customer[1]]
        if len(queue) == 30:
            self.deliver(queue)
            self.pushed_out += 1
        queue.append(order)
        self.last[customer] = order
        return order["cents"], f"{order['cents']} cents, {self.length(order)} characters"

    def length(self, order):
        _, district, number = order["customer"]
        document = f'<order customer="Customer {number} of district {district}">\n'
        for item, quantity, cents in order["lines"]:
            document += f'  <line item="{item}" quantity="{quantity}" cents="{cents}"/>\n'
        return len(document + "</order>\n")

    def payment(self, warehouse):
        customer = self.customer(warehouse)
        cents = 100 + self.random.below(100_000)
        self.balance[customer] -= cents
        self.payments[customer].append(cents)
        return cents, f"{cents} cents, balance {self.balance[customer]}"

    def order_status(self, warehouse):
        order = self.last.get(self.customer(warehouse))
        if order is None:
            return 0, "none"
        return 0, f"{'delivered' if order['delivered'] else 'open'} {self.length(order)} characters"

    def delivery(self, warehouse):
        cents = sum(self.deliver(queue) for queue in self.open[warehouse])
        return cents, f"{cents} cents"

    def stock_level(self, warehouse):
        district = self.random.below(10)
        level = 10 + self.random.below(30)
        items = {line[0] for order in self.open[warehouse][district] for line in order["lines"]}
        return 0, f"{sum(self.stock[warehouse][item] < level for item in items)} items below {level}"

    def customer_report(self, warehouse):
        customer = self.customer(warehouse)
        return 0, f"balance {self.balance[customer]}, paid {sum(self.payments[customer][-5:])}"
