"""Offers, against a search through all hotels without an index."""

import math

from function import FunctionTest
from java_random import Random

HOTELS = 20_000
CITY = 100_000


def make_hotels():
    random = Random(2024)
    for number in range(HOTELS):
        east, north, stars = random.below(CITY), random.below(CITY), 1 + random.below(5)
        cents, rooms = stars * 3000 + random.below(10_000), 1 + random.below(50)
        yield number, east, north, stars, cents, rooms


class HotelSearchingTest(FunctionTest):
    name = "hotel-searching"
    hotels = list(make_hotels())

    def search(self, east, north, radius, day, nights, rooms):
        """Return how many hotels are near, and the offers in order."""
        near, offers = 0, []
        for number, hotel_east, hotel_north, _, cents, all_rooms in self.hotels:
            squared = (hotel_east - east) ** 2 + (hotel_north - north) ** 2
            if squared > radius**2:
                continue
            near += 1
            days = range(day, day + nights)
            taken = max((number * 31 + night * 17 + number * night) % (all_rooms + 1) for night in days)
            if all_rooms - taken >= rooms:
                price = sum(cents if night % 7 < 5 else cents * 6 // 5 for night in days)
                offers.append((price * rooms, squared, number))
        return near, sorted(offers)

    def test_offers(self):
        for case in (
            (50_000, 50_000, 30_000, 100, 3, 1), (0, 0, 10_000, 0, 1, 1), (99_999, 99_999, 20_000, 335, 30, 1),
            (10_000, 80_000, 100_000, 200, 2, 20), (12_345, 67_890, 999, 5, 1, 1), (50_000, 0, 0, 0, 1, 1),
        ):
            east, north, radius, day, nights, rooms = case
            near, offers = self.search(*case)
            answer = self.run_with(east=east, north=north, radius=radius, day=day, nights=nights, rooms=rooms, shown=50)
            self.assertEqual(answer["summary"], f"{len(offers)} of {near} hotels have rooms")
            self.assertEqual(
                [(offer["cents"], offer["metres"], offer["hotel"]) for offer in answer["offers"]],
                [(cents, int(math.sqrt(squared)), number) for cents, squared, number in offers[:50]])

    def test_the_text_of_an_offer(self):
        offer = self.run_with(shown=1)["offers"][0]
        stars = self.hotels[offer["hotel"]][3]
        self.assertEqual(offer["text"], f"Hotel {offer['hotel']} ({stars} stars), {offer['metres']} m away: "
                                        f"{offer['cents'] // 100}.{offer['cents'] % 100:02}")

    def test_wrong_arguments(self):
        self.assert_refused("east has to be", east=100_000)
        self.assert_refused("radius has to be", radius=-1)
        self.assert_refused("nights has to be", nights=31)
        self.assert_refused("day has to be", day=364, nights=2)
        self.run_with(day=364, nights=1)
