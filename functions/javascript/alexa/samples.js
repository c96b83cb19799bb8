"use strict";

// What people say: sentences for each intent. `*` stands for a device of the kinds, `#` for a number.

const SWITCHED = ["light", "heating", "appliance"];
const ALL = [...SWITCHED, "door"];

const INTENTS = [
  {
    intent: "turn on",
    kinds: SWITCHED,
    sentences: ["turn on the *", "turn the * on", "switch on the *", "switch the * on", "start the *"],
  },
  {
    intent: "turn off",
    kinds: SWITCHED,
    sentences: ["turn off the *", "turn the * off", "switch off the *", "switch the * off", "stop the *"],
  },
  {
    intent: "dim",
    kinds: ["light"],
    sentences: ["dim the * to # percent", "set the * to # percent", "set the brightness of the * to #"],
  },
  {
    intent: "heat",
    kinds: ["heating"],
    sentences: ["set the * to # degrees", "turn the * to # degrees", "make the * # degrees"],
  },
  { intent: "lock", kinds: ["door"], sentences: ["lock the *", "close the *", "lock up the *"] },
  { intent: "unlock", kinds: ["door"], sentences: ["unlock the *", "open the *"] },
  { intent: "ask", kinds: SWITCHED, sentences: ["is the * on", "is the * off"] },
  { intent: "ask", kinds: ["door"], sentences: ["is the * locked", "is the * open", "is the * unlocked"] },
  { intent: "ask", kinds: ALL, sentences: ["what about the *", "how is the *", "what is the state of the *"] },
  { intent: "list", sentences: ["what is on", "which devices are on", "list all devices that are on"] },
  {
    intent: "all off",
    sentences: ["turn everything off", "turn off everything", "switch everything off", "good night"],
  },
  { intent: "code", sentences: ["#", "my code is #", "the code is #"] },
];

module.exports = { INTENTS };
