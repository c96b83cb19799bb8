"use strict";

// Pay slips as text: a line for each, with employee, department, base pay in cents, hours of overtime and merit in
// percent.

const { random } = require("../common/random");

const DEPARTMENTS = ["engineering", "finance", "marketing", "operations", "research", "sales"];
const HEAD = "employee,department,base_cents,overtime_hours,merit_percent";
const MAX_SLIPS = 20_000;
// Employee numbers go up to here.
const MAX_EMPLOYEE = 20_000;

/** So many slips of employees that a seed draws. */
function draw(count, seed) {
  const next = random(seed);
  const lines = Array.from({ length: count }, () => {
    const employee = 1 + next(MAX_EMPLOYEE);
    const department = DEPARTMENTS[next(DEPARTMENTS.length)];
    return `${employee},${department},${200_000 + next(600_000)},${next(40)},${next(25)}`;
  });
  return [HEAD, ...lines, ""].join("\n");
}

function whole(text, most, line) {
  if (!/^\d{1,9}$/.test(text) || Number(text) > most) {
    throw new RangeError(
      `line ${line} has ${JSON.stringify(text.slice(0, 20))}, which is no whole number up to ${most}`,
    );
  }
  return Number(text);
}

function slipOf(text, line) {
  const fields = text.split(",");
  if (fields.length !== 5) throw new RangeError(`line ${line} has ${fields.length} fields, not 5`);
  const [employee, department, base, overtime, merit] = fields;
  if (!DEPARTMENTS.includes(department)) throw new RangeError(`line ${line} has a department that is not known`);
  return {
    employee: whole(employee, MAX_EMPLOYEE, line),
    department,
    base_cents: whole(base, 100_000_000, line),
    overtime_hours: whole(overtime, 200, line),
    merit_percent: whole(merit, 100, line),
  };
}

/** The slips that a text has. */
function parse(text) {
  const lines = text.split("\n");
  if (lines.shift() !== HEAD) throw new RangeError(`slips have to begin with the line ${HEAD}`);
  if (lines.at(-1) === "") lines.pop();
  if (lines.length < 1 || lines.length > MAX_SLIPS) throw new RangeError(`slips have to be 1 to ${MAX_SLIPS}`);
  return lines.map((line, index) => slipOf(line, index + 2));
}

module.exports = { MAX_SLIPS, draw, parse };
