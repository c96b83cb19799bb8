"use strict";

// A Fibonacci number, exact: each step makes a number that is garbage two steps later.

const { whole } = require("../common/arguments");

exports.main = (values) => {
  const number = whole(values, "number", { least: 0, most: 50_000, otherwise: 20_000 });
  let [current, next] = [0n, 1n];
  for (let step = 0; step < number; step++) [current, next] = [next, current + next];
  return { number, value: current.toString() };
};
