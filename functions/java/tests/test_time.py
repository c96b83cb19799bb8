"""Times, against zoneinfo."""

import datetime
import zoneinfo

from function import FunctionTest

ZONES = ["Europe/Oslo", "Asia/Tokyo", "America/New_York", "Australia/Sydney", "Asia/Kolkata", "UTC", "Africa/Nairobi"]


class TimeTest(FunctionTest):
    name = "time"

    def local(self, at, zone):
        return datetime.datetime.fromtimestamp(at, zoneinfo.ZoneInfo(zone))

    def test_clocks_and_working_hours(self):
        # A winter, a summer, the hours around a change of clocks.
        for at in (1_700_000_000, 1_720_000_000, 1_711_846_799, 1_711_846_800, 0):
            answer = self.run_with(at=at, zones=ZONES)
            clock = {}
            for zone in ZONES:
                local = self.local(at, zone)
                offset = local.strftime("%z")
                clock[zone] = local.strftime("%A, %Y-%m-%d %H:%M:%S ") + f"{offset[:3]}:{offset[3:5]}"
            self.assertEqual(answer["clock"], clock)
            at_work = []
            for hour in range(48):
                times = [self.local(at + 3600 * hour, zone) for zone in ZONES]
                at_work.append(sum(time.weekday() < 5 and 9 <= time.hour < 17 for time in times))
            self.assertEqual(answer["at_work"], at_work)
            self.assertEqual(answer["best_hour"], at_work.index(max(at_work)))

    def test_all_zones_now(self):
        before = datetime.datetime.now(datetime.UTC)
        clock = self.run_with()["clock"]
        after = datetime.datetime.now(datetime.UTC)
        self.assertGreater(len(clock), 400)
        said = datetime.datetime.strptime(clock["UTC"], "%A, %Y-%m-%d %H:%M:%S %z")
        self.assertLessEqual(before.replace(microsecond=0), said)
        self.assertLessEqual(said, after)

    def test_wrong_arguments(self):
        self.assert_refused("there is no time zone", zones=["Europe/Nowhere"])
        self.assert_refused("zones has to be a list", zones="Europe/Oslo")
        self.assert_refused("each of zones", zones=[1])
        self.assert_refused("at has to be a whole number", at=-1)
        self.run_with(at=253_402_128_000)
