"use strict";

// A clock of the world: the time of each hour of some days in several places, and when clocks are changed there.

const { list, text, whole } = require("../common/arguments");

const HOUR_MS = 3_600_000;
const MINUTE_MS = 60_000;
// From 1970 to 2100: zones have whole minutes, and years four digits.
const LAST_MOMENT_MS = Date.UTC(2100, 0);
// Places whose formatters are kept: making one takes longer than a hundred times of day.
const MAX_KEPT = 64;

const kept = new Map();

function formatterOf(zone) {
  let formatter = kept.get(zone);
  if (!formatter) {
    formatter = new Intl.DateTimeFormat("en-GB", {
      timeZone: zone,
      hourCycle: "h23",
      year: "numeric",
      month: "2-digit",
      day: "2-digit",
      hour: "2-digit",
      minute: "2-digit",
    });
    if (kept.size === MAX_KEPT) kept.delete(kept.keys().next().value);
  }
  // The one used last is the last to go.
  kept.delete(zone);
  kept.set(zone, formatter);
  return formatter;
}

/** The time in a place, and how far it is ahead of UTC. */
function look(formatter, moment) {
  const { year, month, day, hour, minute } = Object.fromEntries(
    formatter.formatToParts(moment).map(({ type, value }) => [type, value]),
  );
  const local = `${year}-${month}-${day}T${hour}:${minute}`;
  return { local, offset_minutes: (Date.parse(`${local}Z`) - moment) / MINUTE_MS };
}

function timesOf(zone, start, hours) {
  const formatter = formatterOf(zone);
  const times = Array.from({ length: hours }, (_, hour) => look(formatter, start + hour * HOUR_MS));
  const changes = times
    .map(({ offset_minutes }, hour) => ({ hour, offset_minutes }))
    .filter(({ hour, offset_minutes }) => hour > 0 && offset_minutes !== times[hour - 1].offset_minutes);
  return { zone, first: times[0], last: times[hours - 1], midnights: midnights(times), changes };
}

/** The hours at which a new day has begun. */
function midnights(times) {
  const days = times.map(({ local }) => local.slice(0, 10));
  return [...days.keys()].filter((hour) => hour > 0 && days[hour] !== days[hour - 1]);
}

/** The minute that `start` says, or the one that it is. */
function startOf(values) {
  const start = Date.parse(text(values, "start", { most: 40, otherwise: new Date().toISOString() }));
  if (!(start >= 0 && start <= LAST_MOMENT_MS)) {
    throw new RangeError("start has to be a time such as 2026-03-29T00:00Z, from 1970 to 2100");
  }
  return start - (start % MINUTE_MS);
}

exports.main = (values) => {
  const start = startOf(values);
  const days = whole(values, "days", { least: 1, most: 400, otherwise: 14 });
  const zones = list(values, "zones", { most: 16, otherwise: ["UTC"] });
  const clocks = zones.map((zone, index) => timesOf(text(zones, index, { most: 64 }), start, days * 24));
  const lines = clocks.map(({ zone, first, changes }) => `${zone} ${first.local} ${changes.length} changes`);
  return { start: new Date(start).toISOString(), clocks, text: lines.join("\n") };
};
