"use strict";

// The connected parts of a random graph, by merging sets, each a tree of nodes that point to their root.

const { whole } = require("../common/arguments");
const { SEEDS, random } = require("../common/random");

class Node {
  constructor() {
    this.parent = this;
    this.size = 1;
  }

  root() {
    let node = this;
    while (node.parent !== node) {
      node.parent = node.parent.parent;
      node = node.parent;
    }
    return node;
  }

  merge(other) {
    let [large, small] = [this.root(), other.root()];
    if (large === small) return;
    if (large.size < small.size) [large, small] = [small, large];
    small.parent = large;
    large.size += small.size;
  }
}

exports.main = (values) => {
  const count = whole(values, "nodes", { least: 1, most: 200_000, otherwise: 50_000 });
  const edgeCount = whole(values, "edges", { least: 0, most: 400_000, otherwise: 40_000 });
  const draw = random(whole(values, "seed", SEEDS));
  const edges = Array.from({ length: edgeCount }, () => [draw(count), draw(count)]);

  const nodes = Array.from({ length: count }, () => new Node());
  for (const [from, to] of edges) nodes[from].merge(nodes[to]);

  const sizes = nodes
    .filter((node) => node.root() === node)
    .map(({ size }) => size)
    .sort((a, b) => b - a);
  const isolated = sizes.filter((size) => size === 1).length;
  return {
    components: sizes.length,
    largest: sizes.slice(0, 10),
    isolated,
    summary: `${sizes.length} components, the largest of ${sizes[0]}, ${isolated} of one node`,
  };
};
