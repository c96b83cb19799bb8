"use strict";

// A dialogue with a home: each utterance becomes an intent, the devices change, and there is an answer. Homes stay as
// they are from one call to the next.

const { list, text } = require("../common/arguments");
const { Home } = require("./home");
const { understand } = require("./understanding");

// Of homes beyond this many the one that was not spoken to for longest goes.
const MAX_HOMES = 64;

const homes = new Map();

function homeOf(name) {
  const home = homes.get(name) ?? new Home();
  homes.delete(name);
  homes.set(name, home);
  if (homes.size > MAX_HOMES) homes.delete(homes.keys().next().value);
  return home;
}

exports.main = (values) => {
  const name = text(values, "home", { most: 64, otherwise: "home" });
  const code = text(values, "code", { least: 4, most: 8, otherwise: "2468" });
  const utterances = list(values, "utterances", { most: 50 });
  for (const index of utterances.keys()) text(utterances, index, { most: 200 });
  const home = homeOf(name);
  const answers = utterances.map((utterance) => {
    const meaning = understand(utterance);
    return { utterance, ...meaning, say: home.answer(meaning, code) };
  });
  return { answers, text: answers.map(({ say }) => say).join("\n") };
};
