"""The function itself: a page with a table of items."""

import random

from flask import render_template

# More would be a mistake of the caller: a page of this many rows is about 10 MB.
MAX_ITEMS = 100_000


def main(arguments):
    """Render the page for ``username`` with ``items`` rows (1,000 unless given).

    Returns the page, how many items it has, and the sum of their prices in cents, which is
    printed on the page too. The same arguments give the same page.
    """
    username = arguments.get("username", "guest")
    count = arguments.get("items", 1000)
    if not isinstance(username, str) or not 1 <= len(username) <= 100:
        raise ValueError("username has to be a string of 1 to 100 characters")
    if not isinstance(count, int) or isinstance(count, bool) or not 0 <= count <= MAX_ITEMS:
        raise ValueError(f"items has to be a whole number from 0 to {MAX_ITEMS}")
    prices = random.Random(f"{username}/{count}")
    items = [
        {"number": number, "name": f"Item {number}", "cents": prices.randrange(1, 100_000)}
        for number in range(1, count + 1)
    ]
    total = sum(item["cents"] for item in items)
    page = render_template("page.html", username=username, items=items, total=total)
    return {"html": page, "items": count, "total_cents": total}
