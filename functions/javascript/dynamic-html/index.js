"use strict";

// A page of offers for a user, from a template that is compiled once.

const { readFileSync } = require("node:fs");
const path = require("node:path");
const { text, whole } = require("../common/arguments");
const { SEEDS, random } = require("../common/random");
const { compile } = require("./template");

const CATEGORIES = ["Books & maps", "Garden", "Kitchen", "Music", "Tools"];
const page = compile(readFileSync(path.join(__dirname, "page.html"), "utf8"));

const euros = (cents) => (cents / 100).toFixed(2);

function offersOf(count, draw) {
  return Array.from({ length: count }, (_, index) => {
    const cents = 1 + draw(100_000);
    return {
      number: index + 1,
      category: CATEGORIES[draw(CATEGORIES.length)],
      cents,
      price: euros(cents),
      reduced: draw(10) === 0,
    };
  });
}

exports.main = (values) => {
  const username = text(values, "username", { most: 100, otherwise: "guest" });
  const count = whole(values, "offers", { least: 0, most: 20_000, otherwise: 2_000 });
  const offers = offersOf(count, random(whole(values, "seed", SEEDS)));
  const categories = CATEGORIES.map((category) => ({
    category,
    offers: offers.filter((offer) => offer.category === category),
  }));
  const total = euros(offers.reduce((sum, { cents }) => sum + cents, 0));
  return { html: page({ username, count, categories, total }), total };
};
