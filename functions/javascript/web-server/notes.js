"use strict";

// Of notes beyond this many the oldest go.
const MAX_NOTES = 1000;

/** Notes by number, the latest ones. */
class Notes {
  #notes = new Map();
  #last = 0;

  add(text) {
    this.#last++;
    this.#notes.set(this.#last, text);
    this.#notes.delete(this.#last - MAX_NOTES);
    return this.#last;
  }

  get(number) {
    return this.#notes.get(number);
  }

  remove(number) {
    return this.#notes.delete(number);
  }
}

module.exports = { Notes };
