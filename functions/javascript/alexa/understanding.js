"use strict";

// From an utterance to an intent: the sample that is most alike says what is meant, and of which device. Words and
// parts of words are compared, weighted by how rare they are, so that a slip of the tongue does no harm.

const { DEVICES } = require("./devices");
const { INTENTS } = require("./samples");

// What is less alike than this is not understood. 1 is the same.
const ALIKE = 0.45;
// What no sample has counts for this much of the rarest that one has: it may be a slip, or mean something else.
const UNKNOWN = 0.4;
// Characters.
const PART = 3;
// Words that are said and mean nothing.
const FILLERS = /\b(alexa|hey|please|now|can you|could you|would you|thank you|thanks)\b/g;

/** How often each word and each part of a word occurs. */
function features(sentence) {
  const counts = new Map();
  const count = (feature) => counts.set(feature, (counts.get(feature) ?? 0) + 1);
  for (const word of sentence.split(" ")) {
    count(word);
    const padded = ` ${word} `;
    for (let start = 0; start + PART <= padded.length; start++) count(padded.slice(start, start + PART));
  }
  return counts;
}

/** Sentences for each intent with each of the devices it is for, or the word "it". */
function expand() {
  return INTENTS.flatMap(({ intent, kinds = [], sentences }) =>
    sentences.flatMap((sentence) => {
      if (!sentence.includes("*")) return [{ intent, device: null, sentence }];
      const named = DEVICES.filter(({ kind }) => kinds.includes(kind)).map(({ name }) => ({
        intent,
        device: name,
        sentence: sentence.replace("*", name),
      }));
      return [...named, { intent, device: "it", sentence: sentence.replace("the *", "it") }];
    }),
  );
}

/** For each feature how rare it is in the samples. */
function weigh(samples) {
  const frequencies = new Map();
  for (const { counts } of samples) {
    for (const feature of counts.keys()) frequencies.set(feature, (frequencies.get(feature) ?? 0) + 1);
  }
  return new Map([...frequencies].map(([feature, count]) => [feature, Math.log(1 + samples.length / count)]));
}

/** Features as a vector of length 1. */
function direct(counts, weights, unknown) {
  const vector = new Map([...counts].map(([feature, count]) => [feature, count * (weights.get(feature) ?? unknown)]));
  let square = 0;
  for (const value of vector.values()) square += value * value;
  for (const [feature, value] of vector) vector.set(feature, value / Math.sqrt(square));
  return vector;
}

const raw = expand().map((sample) => ({ ...sample, counts: features(sample.sentence) }));
const weights = weigh(raw);
const unknown = UNKNOWN * Math.log(1 + raw.length);
const samples = raw.map(({ intent, device, counts }) => ({ intent, device, vector: direct(counts, weights, unknown) }));

function likeness(a, b) {
  let sum = 0;
  for (const [feature, value] of a) sum += value * (b.get(feature) ?? 0);
  return sum;
}

/** Lower case, no punctuation, each number a `#`. */
function normalise(utterance) {
  const numbers = [];
  const sentence = utterance
    .toLowerCase()
    .replace(/[^a-z0-9 ]+/g, " ")
    .replace(FILLERS, " ")
    .replace(/\d+/g, (digits) => {
      numbers.push(digits);
      return " # ";
    })
    .trim()
    .replace(/\s+/g, " ");
  return { sentence, number: numbers[0] ?? null };
}

/** What an utterance means: an intent or null, a device's name, "it" or null, and digits or null. */
function understand(utterance) {
  const { sentence, number } = normalise(utterance);
  const vector = direct(features(sentence), weights, unknown);
  const [best] = samples
    .map(({ intent, device, vector: other }) => ({ intent, device, alike: likeness(vector, other) }))
    .sort((a, b) => b.alike - a.alike);
  return best.alike < ALIKE
    ? { intent: null, device: null, number }
    : { intent: best.intent, device: best.device, number };
}

module.exports = { understand };
