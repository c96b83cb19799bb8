"use strict";

// Analyses the pay slips of a month: reads them, computes what is paid, and compares departments. The ledger of what
// everybody has been paid stays from one call to the next.

const { text, whole } = require("../common/arguments");
const { SEEDS } = require("../common/random");
const { Ledger } = require("./ledger");
const { MAX_SLIPS, draw, parse } = require("./slips");
const { describe, group, slope } = require("./statistics");

// An hour of overtime is paid as this share of the base pay.
const OVERTIME_DIVISOR = 120;
const MAX_TEXT = 1 << 20;

const ledger = new Ledger();

function slipsOf(values) {
  if (values.slips !== undefined) return text(values, "slips", { most: MAX_TEXT });
  return draw(whole(values, "count", { least: 1, most: MAX_SLIPS, otherwise: 5_000 }), whole(values, "seed", SEEDS));
}

/** A slip with what is paid for it: whole cents, each part rounded down. */
function paid(slip) {
  const overtime = Math.floor((slip.base_cents * slip.overtime_hours) / OVERTIME_DIVISOR);
  const merit = Math.floor((slip.base_cents * slip.merit_percent) / 100);
  return { ...slip, pay_cents: slip.base_cents + overtime + merit };
}

const euros = (cents) => (cents / 100).toFixed(2);

function report(name, { count, total_cents: total, median_cents: median }) {
  return `${name}: ${count} slips, ${euros(total)} in all, ${euros(median)} in the middle`;
}

exports.main = (values) => {
  const slips = parse(slipsOf(values)).map(paid);
  const pays = (entries) => describe(entries.map(({ pay_cents: cents }) => cents));
  const all = pays(slips);
  const departments = [...group(slips, ({ department }) => department)]
    .map(([department, entries]) => ({ department, ...pays(entries) }))
    .sort((a, b) => (a.department < b.department ? -1 : 1));
  for (const slip of slips) ledger.pay(slip);
  return {
    all,
    departments,
    cents_by_overtime_hour: slope(slips.map((slip) => ({ x: slip.overtime_hours, y: slip.pay_cents }))),
    ledger: ledger.summary(),
    report: [report("all", all), ...departments.map((entry) => report(entry.department, entry))].join("\n"),
  };
};
