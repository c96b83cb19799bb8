"use strict";

// What a list of payments looks like.

const sum = (numbers) => numbers.reduce((total, number) => total + number, 0);

/** The least of the sorted numbers that so many percent are not above. */
const percentile = (sorted, percent) => sorted[Math.max(0, Math.ceil((sorted.length * percent) / 100) - 1)];

function describe(numbers) {
  const sorted = [...numbers].sort((a, b) => a - b);
  const total = sum(sorted);
  const mean = total / sorted.length;
  return {
    count: sorted.length,
    total_cents: total,
    mean_cents: mean,
    deviation_cents: Math.sqrt(sum(sorted.map((number) => (number - mean) ** 2)) / sorted.length),
    median_cents: percentile(sorted, 50),
    ninetieth_cents: percentile(sorted, 90),
    most_cents: sorted.at(-1),
  };
}

/** What `y` rises by with each 1 of `x`, by least squares; 0 where all `x` are the same. */
function slope(points) {
  const x = sum(points.map((point) => point.x)) / points.length;
  const y = sum(points.map((point) => point.y)) / points.length;
  const spread = sum(points.map((point) => (point.x - x) ** 2));
  return spread === 0 ? 0 : sum(points.map((point) => (point.x - x) * (point.y - y))) / spread;
}

/** Lists of entries by what `key` says of each. */
function group(entries, key) {
  const groups = new Map();
  for (const entry of entries) {
    const name = key(entry);
    if (groups.has(name)) groups.get(name).push(entry);
    else groups.set(name, [entry]);
  }
  return groups;
}

module.exports = { describe, group, slope };
