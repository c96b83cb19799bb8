"use strict";

// The devices that each home has, and what can be done with those of a kind.

const ROOMS = [
  "kitchen",
  "bedroom",
  "bathroom",
  "living room",
  "dining room",
  "guest room",
  "office",
  "nursery",
  "hallway",
  "attic",
  "garage",
  "garden",
];

/** What a device of the kind is like at first, and how its state is told. */
const KINDS = {
  light: {
    first: { on: false, percent: 100 },
    tell: ({ on, percent }) => (!on ? "off" : percent === 100 ? "on" : `at ${percent} percent`),
  },
  heating: { first: { on: false, degrees: 20 }, tell: ({ on, degrees }) => (on ? `at ${degrees} degrees` : "off") },
  appliance: { first: { on: false }, tell: ({ on }) => (on ? "on" : "off") },
  door: { first: { locked: true }, tell: ({ locked }) => (locked ? "locked" : "unlocked") },
};

/** What is in each room, and of which kind. */
const THINGS = {
  light: "light",
  lamp: "light",
  heating: "heating",
  fan: "appliance",
  television: "appliance",
  radio: "appliance",
};
const DOORS = ["front door", "back door", "cellar door"];

/** Name and kind of each. */
const DEVICES = [
  ...ROOMS.flatMap((room) => Object.entries(THINGS).map(([thing, kind]) => ({ name: `${room} ${thing}`, kind }))),
  ...DOORS.map((name) => ({ name, kind: "door" })),
];

/** All devices by name, as they are at first. */
const furnish = () => new Map(DEVICES.map(({ name, kind }) => [name, { name, kind, state: { ...KINDS[kind].first } }]));

/** A sentence about a device. */
const tell = ({ name, kind, state }) => `The ${name} is ${KINDS[kind].tell(state)}.`;

module.exports = { DEVICES, furnish, tell };
