"""Local times against Python's own reading of the time zones."""

import datetime
import re
import zoneinfo

import function

# Some with half hours, one on the other side of the day, and one that goes back by half an hour.
ZONES = ["UTC", "Europe/Berlin", "America/New_York", "Asia/Kolkata", "Asia/Kathmandu", "Australia/Lord_Howe",
         "America/St_Johns", "Pacific/Auckland"]
HOUR = datetime.timedelta(hours=1)


def clock(zone, start, hours):
    times = [(start + hour * HOUR).astimezone(zoneinfo.ZoneInfo(zone)) for hour in range(hours)]
    offsets = [int(time.utcoffset().total_seconds()) // 60 for time in times]
    looks = [{"local": times[hour].strftime("%Y-%m-%dT%H:%M"), "offset_minutes": offsets[hour]} for hour in (0, -1)]
    return {"zone": zone, "first": looks[0], "last": looks[1],
            "midnights": [hour for hour in range(1, hours) if times[hour].date() != times[hour - 1].date()],
            "changes": [{"hour": hour, "offset_minutes": offsets[hour]}
                        for hour in range(1, hours) if offsets[hour] != offsets[hour - 1]]}


class Clock(function.FunctionTest):
    name = "clock"
    wrong = [({"start": "yesterday"}, "start"), ({"start": 5}, "start"), ({"start": "1969-01-01T00:00Z"}, "start"),
             ({"start": "9999-01-01T00:00Z"}, "start"), ({"days": 0}, "days"), ({"days": 401}, "days"),
             ({"zones": []}, "zones"), ({"zones": ["Europe/Nowhere"]}, "Europe/Nowhere"), ({"zones": [7]}, "characters")]

    def test_times_and_changes_are_those_that_python_knows(self):
        for start, days in (("2023-03-25T00:00:00Z", 30), ("2022-12-31T23:59:00Z", 1), ("2021-10-01T12:00:00Z", 45)):
            moment = datetime.datetime.fromisoformat(start)
            answer = self.answer(start=start, days=days, zones=ZONES)
            self.assertEqual(answer["clocks"], [clock(zone, moment, days * 24) for zone in ZONES])

    def test_the_time_that_it_is(self):
        before = datetime.datetime.now(datetime.UTC).replace(second=0, microsecond=0)
        start = datetime.datetime.fromisoformat(self.answer()["start"])
        self.assertTrue(before <= start <= datetime.datetime.now(datetime.UTC), start)

    def test_more_places_than_are_kept(self):
        zones = sorted(zone for zone in zoneinfo.available_timezones() if re.fullmatch(r"Etc/GMT[+-]\d+", zone))
        zones += [f"America/{city}" for city in ("Lima", "Bogota", "Denver", "Phoenix", "Panama", "Toronto")] * 8
        for first in range(0, len(zones), 16):
            part = zones[first:first + 16]
            moment = datetime.datetime(2023, 6, 1, tzinfo=datetime.UTC)
            answer = self.answer(start="2023-06-01T00:00Z", days=1, zones=part)
            self.assertEqual(answer["clocks"], [clock(zone, moment, 24) for zone in part])
