"use strict";

// Loads an action in JavaScript and answers its calls: node launcher.js DIRECTORY MAIN.
// A call is a number and JSON on a line of standard input, and its answer the same number and JSON on one of
// descriptor 3, whenever it is ready: calls run beside each other.
// What the action prints goes to standard output and error, which are its log.

const fs = require("node:fs");
const path = require("node:path");
const readline = require("node:readline");
const { createRequire } = require("node:module");
const { pathToFileURL } = require("node:url");

const ANSWERS = 3;
// What the server takes of an answer.
const MOST_BYTES = 8 << 20;
// What is said of an error.
const MOST_CHARACTERS = 64 << 10;
// Where the server puts code that is a text.
const TEXT = "action.js";
// `main` of OpenWhisk, which may be a path such as handlers.first.
const NAME = /^[A-Za-z_$][\w$]*(\.[A-Za-z_$][\w$]*)*$/;

const isObject = (value) => typeof value === "object" && value !== null && !Array.isArray(value);

/** Code that is a text: what it exports, or a function at its top level, as OpenWhisk's own runtime has it. */
function fromText(file, main) {
  const code = fs.readFileSync(file, "utf8");
  const module = { exports: {} };
  const find = `typeof module.exports === "function" ? module.exports
    : module.exports.${main} ?? (typeof ${main.split(".")[0]} === "undefined" ? undefined : ${main})`;
  // The code begins on the first line, so that errors say the right one.
  const text = `(function (module, exports, require, __filename, __dirname) {${code}\n;return ${find};})`;
  const run = new (require("node:vm").Script)(text, { filename: file }).runInThisContext();
  return run(module, module.exports, createRequire(file), file, path.dirname(file));
}

/** An archive: a package, or an index.js; ES modules too. */
async function fromPackage(directory, main) {
  let entry;
  try {
    entry = createRequire(path.join(directory, "launcher.js")).resolve("./");
  } catch {
    throw new Error("the archive has neither a package.json with a `main` that is there nor an index.js");
  }
  const { default: whole, ...named } = await import(pathToFileURL(entry).href);
  if (typeof whole === "function" && main === "main" && !named.main) return whole;
  return main.split(".").reduce((value, name) => value?.[name], { ...whole, ...named });
}

async function load(directory, main) {
  if (!NAME.test(main)) throw new Error(`${JSON.stringify(main)} is not the name of a function`);
  const text = path.join(directory, TEXT);
  const isText = fs.existsSync(text) && fs.readdirSync(directory).length === 1;
  const action = isText ? fromText(text, main) : await fromPackage(directory, main);
  if (typeof action !== "function") throw new Error(`there is no function ${main}`);
  return action;
}

/** The answer to a call; what comes with the arguments becomes __OW_ variables, which calls beside each other share. */
async function call(action, line) {
  const { value, ...rest } = JSON.parse(line);
  for (const [name, setting] of Object.entries(rest)) {
    if (["string", "number", "boolean"].includes(typeof setting)) {
      process.env[`__OW_${name.toUpperCase()}`] = String(setting);
    }
  }
  // Nothing at all is what many actions return.
  const result = (await action(value)) ?? {};
  if (!isObject(result)) throw new Error("the action did not return a dictionary");
  const text = JSON.stringify(result);
  // One that is too long would end the calls beside it.
  if (Buffer.byteLength(text) > MOST_BYTES - 32) throw new Error("the action's answer is longer than 8 MiB");
  return text;
}

function send(text) {
  // A pipe takes a part of a long answer at a time, and may be full.
  // Whatever the action itself has written there does not become a part of it.
  const bytes = Buffer.from(`\n${text}\n`);
  for (let sent = 0; sent < bytes.length; ) {
    try {
      sent += fs.writeSync(ANSWERS, bytes, sent);
    } catch (error) {
      if (error.code !== "EAGAIN") throw error;
    }
  }
}

/** Whatever an action throws, on one line. It may be anything, such as an object that throws when it is looked at. */
function failed(error) {
  let text = "the action threw something that has no text";
  try {
    console.error(error);
    // Where a syntax error is comes first in its stack.
    const where = error instanceof SyntaxError ? /:(\d+)\n/.exec(error.stack) : null;
    const whole = String(error).slice(0, MOST_CHARACTERS).replace(/\s+/g, " ");
    text = where ? `${whole} (line ${where[1]})` : whole;
  } catch {
    // That is its text.
  }
  return JSON.stringify({ error: text });
}

async function main() {
  const [directory, name] = process.argv.slice(2);
  const lines = readline.createInterface({ input: process.stdin, crlfDelay: Infinity });
  let action;
  try {
    action = await load(directory, name);
  } catch (error) {
    send(failed(error));
    process.exit(1);
  }
  // A promise that is rejected before anybody waits for it is that call's own, and not the end of those beside it.
  process.on("unhandledRejection", (error) => void failed(error));
  send('{"ok":true}');
  for await (const line of lines) {
    const [number] = line.split(" ", 1);
    call(action, line.slice(number.length))
      .catch(failed)
      .then((answer) => send(`${number} ${answer}`));
  }
  process.exit(0);
}

main();
