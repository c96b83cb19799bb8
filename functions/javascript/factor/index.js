"use strict";

// The prime factors of a number of up to 20 digits, by Pollard's rho method: each of its steps makes new numbers.

const { text } = require("../common/arguments");

const MAX_DIGITS = 20;
// Miller and Rabin's test with these bases is right for all numbers below 3.3 * 10^24.
const BASES = [2n, 3n, 5n, 7n, 11n, 13n, 17n, 19n, 23n, 29n, 31n, 37n, 41n];

function power(base, exponent, modulus) {
  let result = 1n;
  for (base %= modulus; exponent > 0n; exponent >>= 1n) {
    if (exponent & 1n) result = (result * base) % modulus;
    base = (base * base) % modulus;
  }
  return result;
}

/** Whether `base` shows that the odd `number` is composite. */
function witnesses(base, number) {
  let odd = number - 1n;
  let halvings = 0;
  for (; !(odd & 1n); odd >>= 1n) halvings++;
  let value = power(base, odd, number);
  if (value === 1n || value === number - 1n) return false;
  for (; halvings > 1; halvings--) {
    value = (value * value) % number;
    if (value === number - 1n) return false;
  }
  return true;
}

function isPrime(number) {
  if (number < 2n) return false;
  const small = BASES.find((prime) => number % prime === 0n);
  if (small) return number === small;
  return !BASES.some((base) => witnesses(base, number));
}

function divisor(a, b) {
  while (b) [a, b] = [b, a % b];
  return a;
}

const distance = (a, b) => (a > b ? a - b : b - a);

/** A divisor of a composite number, neither 1 nor the number. */
function part(number) {
  if (!(number & 1n)) return 2n;
  // A sequence that finds nothing but the number itself is followed by another one.
  for (let increment = 1n; ; increment++) {
    const next = (value) => (value * value + increment) % number;
    let slow = 2n;
    let fast = 2n;
    let found = 1n;
    while (found === 1n) {
      slow = next(slow);
      fast = next(next(fast));
      found = divisor(distance(slow, fast), number);
    }
    if (found !== number) return found;
  }
}

function factors(number) {
  if (number === 1n) return [];
  if (isPrime(number)) return [number];
  const found = part(number);
  return [...factors(found), ...factors(number / found)];
}

exports.main = (values) => {
  const digits = text(values, "number", { most: MAX_DIGITS, otherwise: "1000000016000000063" });
  if (!/^[1-9]\d*$/.test(digits)) throw new RangeError("number has to be the digits of a whole number from 1 on");
  const found = factors(BigInt(digits)).sort((a, b) => (a < b ? -1 : 1));
  return { number: digits, factors: found.map(String), product: found.join(" * ") };
};
