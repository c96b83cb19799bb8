"use strict";

// Digits of pi by Machin's formula, pi/4 = 4 arctan(1/5) - arctan(1/239), in whole numbers of that many digits:
// each term of the series is a new one.

const { whole } = require("../common/arguments");

// What rounding down takes from the terms is not in the digits that are given.
const SPARE_DIGITS = 10;

/** arctan(1/inverse) times `unit`. */
function arctangent(inverse, unit) {
  const square = inverse * inverse;
  let power = unit / inverse;
  let sum = power;
  for (let divisor = 3n, sign = -1n; power !== 0n; divisor += 2n, sign = -sign) {
    power /= square;
    sum += (sign * power) / divisor;
  }
  return sum;
}

exports.main = (values) => {
  const count = whole(values, "digits", { least: 1, most: 10_000, otherwise: 4_000 });
  const unit = 10n ** BigInt(count + SPARE_DIGITS);
  const pi = 4n * (4n * arctangent(5n, unit) - arctangent(239n, unit));
  const digits = pi.toString().slice(0, count + 1);
  return { digits: count, pi: `${digits[0]}.${digits.slice(1)}` };
};
