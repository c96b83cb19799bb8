"use strict";

// The product of two square matrices of whole numbers, and a few numbers that say whether it is right.

const { whole } = require("../common/arguments");
const { SEEDS, random } = require("../common/random");

// The entries; the sums of the products stay far below 2^53, so all of it is exact.
const BOUND = 1000;

const matrix = (size, draw) => Array.from({ length: size }, () => Array.from({ length: size }, () => draw(BOUND)));

const columns = (rows) => rows[0].map((_, column) => rows.map((row) => row[column]));

function dot(a, b) {
  let sum = 0;
  for (let index = 0; index < a.length; index++) sum += a[index] * b[index];
  return sum;
}

function multiply(a, b) {
  const turned = columns(b);
  return a.map((row) => turned.map((column) => dot(row, column)));
}

const sum = (numbers) => numbers.reduce((total, number) => total + number, 0);

exports.main = (values) => {
  const size = whole(values, "size", { least: 1, most: 512, otherwise: 256 });
  const draw = random(whole(values, "seed", SEEDS));
  const a = matrix(size, draw);
  const b = matrix(size, draw);
  const product = multiply(a, b);
  const trace = sum(product.map((row, index) => row[index]));
  return {
    row_sums: product.map(sum),
    column_sums: columns(product).map(sum),
    trace,
    summary: `${size} x ${size}, trace ${trace}`,
  };
};
