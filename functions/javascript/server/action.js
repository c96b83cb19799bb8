"use strict";

// A function of this folder, from /init on.

const { Refused, isObject } = require("./body");

class Action {
  #directory;
  #main = null;

  constructor(directory) {
    this.#directory = directory;
  }

  /** Takes the environment of /init and loads the function. */
  init({ value }) {
    if (this.#main) throw new Refused(403, "Cannot initialize the action more than once.");
    if (value.code) throw new Refused(400, "The function is here already: /init takes no code.");
    const environment = value.env ?? {};
    if (!isObject(environment)) throw new Refused(400, "env has to be a JSON object.");
    for (const [name, setting] of Object.entries(environment)) setVariable(name, setting);
    const name = value.main ?? "main";
    const exported = require(this.#directory);
    if (!Object.hasOwn(exported, name))
      throw new Refused(400, `The function has no entry point ${JSON.stringify(name)}.`);
    this.#main = exported[name];
    return { ok: true };
  }

  /** Calls the function with "value"; what else comes with it becomes __OW_ variables. */
  async run({ value, ...rest }) {
    if (!this.#main) throw new Refused(409, "POST /init comes before POST /run.");
    for (const [name, setting] of Object.entries(rest)) {
      if (["string", "number", "boolean"].includes(typeof setting)) setVariable(`__OW_${name.toUpperCase()}`, setting);
    }
    return this.#call(value);
  }

  async #call(value) {
    let result;
    try {
      result = await this.#main(value);
    } catch (error) {
      console.error(error);
      throw new Refused(502, `The action raised ${error}`);
    }
    if (!isObject(result)) throw new Refused(502, "The action did not return a dictionary.");
    return result;
  }
}

function setVariable(name, setting) {
  // What the operating system cannot keep is left out.
  if (name === "" || /[=\0]/.test(name)) return;
  process.env[name] = typeof setting === "string" ? setting : JSON.stringify(setting);
}

module.exports = { Action };
