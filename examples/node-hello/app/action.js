"use strict";

// The function itself, unless POST /init brings another one.
exports.main = ({ name = "stranger" }) => {
  if (typeof name !== "string") {
    throw new TypeError("name has to be a string");
  }
  return { greeting: `Hello, ${name}!`, node: process.version };
};
