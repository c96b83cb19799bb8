"use strict";

// A home: its devices, and what has been said of them.

const { furnish, tell } = require("./devices");

const MAX_DEGREES = 30;
const MIN_DEGREES = 5;

class Home {
  #devices = furnish();
  // The device that "it" is.
  #latest = null;
  // The door that is opened once the code has been said.
  #waiting = null;

  #intents = {
    "turn on": (device) => this.#change(device, { on: true }),
    "turn off": (device) => this.#change(device, { on: false }),
    dim: (device, number) =>
      number === null || number > 100
        ? "A light can be set from 0 to 100 percent."
        : this.#change(device, { on: number > 0, percent: number || 100 }),
    heat: (device, number) =>
      number === null || number < MIN_DEGREES || number > MAX_DEGREES
        ? `A heating can be set from ${MIN_DEGREES} to ${MAX_DEGREES} degrees.`
        : this.#change(device, { on: true, degrees: number }),
    lock: (device) => this.#change(device, { locked: true }),
    unlock: (device) => {
      this.#waiting = device;
      return "What is your code?";
    },
    ask: (device) => tell(device),
  };

  #change(device, state) {
    // "Turn it on" with a door, say.
    if (!Object.keys(state).every((key) => key in device.state)) return `The ${device.name} cannot do that.`;
    Object.assign(device.state, state);
    return tell(device);
  }

  #list() {
    const names = [...this.#devices.values()].filter(({ state }) => state.on).map(({ name }) => `the ${name}`);
    return names.length === 0 ? "Nothing is on." : `On: ${names.join(", ")}.`;
  }

  #allOff() {
    for (const { state } of this.#devices.values()) if (state.on) state.on = false;
    return "Everything is off.";
  }

  #open(door, said, code) {
    if (!door) return "I have not asked for a code.";
    if (said !== code) return "That code is wrong.";
    return this.#change(door, { locked: false });
  }

  /** Does what is meant, and says what has come of it. `code` opens doors. */
  answer({ intent, device: name, number }, code) {
    const door = this.#waiting;
    this.#waiting = null;
    if (intent === null) return "I did not understand that.";
    if (intent === "code") return this.#open(door, number, code);
    if (intent === "list") return this.#list();
    if (intent === "all off") return this.#allOff();
    const device = name === "it" ? this.#latest : this.#devices.get(name);
    if (!device) return "Which device do you mean?";
    this.#latest = device;
    return this.#intents[intent](device, number === null ? null : Number(number));
  }
}

module.exports = { Home };
