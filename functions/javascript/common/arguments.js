"use strict";

// The arguments of functions, checked.

/** A whole number from `least` to `most`, or `otherwise` where there is none. */
function whole(values, name, { least, most, otherwise }) {
  const value = values[name] ?? otherwise;
  if (!Number.isInteger(value) || value < least || value > most) {
    throw new RangeError(`${name} has to be a whole number from ${least} to ${most}`);
  }
  return value;
}

/** A finite number from `least` to `most`. */
function number(values, name, { least, most, otherwise }) {
  const value = values[name] ?? otherwise;
  if (!Number.isFinite(value) || value < least || value > most) {
    throw new RangeError(`${name} has to be a number from ${least} to ${most}`);
  }
  return value;
}

/** A string of `least` to `most` characters. */
function text(values, name, { least = 1, most, otherwise }) {
  const value = values[name] ?? otherwise;
  if (typeof value !== "string" || value.length < least || value.length > most) {
    throw new RangeError(`${name} has to be a string of ${least} to ${most} characters`);
  }
  return value;
}

/** A list of `least` to `most` entries. */
function list(values, name, { least = 1, most, otherwise }) {
  const value = values[name] ?? otherwise;
  if (!Array.isArray(value) || value.length < least || value.length > most) {
    throw new RangeError(`${name} has to be a list of ${least} to ${most} entries`);
  }
  return value;
}

/** A list of `least` to `most` JSON objects. */
function objects(values, name, bounds) {
  const value = list(values, name, bounds);
  if (value.some((entry) => typeof entry !== "object" || entry === null || Array.isArray(entry))) {
    throw new TypeError(`${name} has to be a list of objects`);
  }
  return value;
}

module.exports = { list, number, objects, text, whole };
