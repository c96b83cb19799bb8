"use strict";

// Numbers that look random and are the same for the same seed, so that who asks can know what is right.

// The "minimal standard" generator of Park and Miller: its products fit into a double.
const MULTIPLIER = 48271;
const MODULUS = 2147483647;

/** A function that gives whole numbers from 0 to `bound` - 1, by a `seed` from 1 to 2^31 - 2. */
function random(seed) {
  let state = seed;
  return (bound) => {
    state = (state * MULTIPLIER) % MODULUS;
    return state % bound;
  };
}

/** What a seed may be, for whole() of arguments.js. */
const SEEDS = { least: 1, most: MODULUS - 1, otherwise: 1 };

module.exports = { SEEDS, random };
