"use strict";

// Finds the function that POST /init means: the code it brings, or else action.js of the image.

const { createRequire } = require("node:module");

// `main` of OpenWhisk, which may be a path such as exports.handlers.first.
const NAME = /^[A-Za-z_$][\w$]*(\.[A-Za-z_$][\w$]*)*$/;

function fromCode(code, main) {
  const module = { exports: {} };
  // As OpenWhisk's own runtime has it: what is exported, or a function at the top level of the code.
  const evaluate = new Function(
    "module",
    "exports",
    "require",
    `${code}\n;return typeof module.exports === "function" ? module.exports
      : module.exports.${main} ?? (typeof ${main.split(".")[0]} === "undefined" ? undefined : ${main});`,
  );
  return evaluate(module, module.exports, createRequire("/app/"));
}

exports.load = ({ code, binary = false, main }) => {
  const name = main || "main";
  if (!NAME.test(name)) {
    throw new Error(`${JSON.stringify(name)} is not a function name`);
  }
  if (binary) {
    throw new Error("archives are not taken, only code as text");
  }
  const action = code ? fromCode(code, name) : require("./action")[name];
  if (typeof action !== "function") {
    throw new Error(`there is no function ${name}`);
  }
  return action;
};
