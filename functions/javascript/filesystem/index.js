"use strict";

// Writes files into a directory of its own, lists them, reads them back line by line, and removes them.

const crypto = require("node:crypto");
const fs = require("node:fs");
const { mkdtemp, readdir, rm, stat, writeFile } = require("node:fs/promises");
const os = require("node:os");
const path = require("node:path");
const readline = require("node:readline");
const { text, whole } = require("../common/arguments");

/** Lines of a log, of about `bytes`. */
function log(title, file, bytes) {
  const lines = [];
  for (let size = 0, line = 0; size < bytes; line++) {
    lines.push(`${title} file ${file} line ${line} value ${(line * 7919 + file) % 10007}\n`);
    size += lines[line].length;
  }
  return lines.join("");
}

/** How many lines a file has, and the sum of the values in them. */
async function read(file) {
  let lines = 0;
  let sum = 0;
  for await (const line of readline.createInterface({ input: fs.createReadStream(file) })) {
    lines++;
    sum += Number(line.split(" ").pop());
  }
  return { lines, sum };
}

async function digest(file) {
  const hash = crypto.createHash("sha256");
  for await (const chunk of fs.createReadStream(file)) hash.update(chunk);
  return hash.digest("hex");
}

async function examine(directory, name) {
  const file = path.join(directory, name);
  const { size } = await stat(file);
  return { name, bytes: size, ...(await read(file)), sha256: await digest(file) };
}

exports.main = async (values) => {
  const title = text(values, "title", { most: 40, otherwise: "squeezy" });
  if (!/^[\w.-]+$/.test(title)) throw new RangeError("title may have letters, digits and . _ - in it");
  const count = whole(values, "files", { least: 1, most: 64, otherwise: 16 });
  const bytes = whole(values, "bytes", { least: 1, most: 1 << 18, otherwise: 1 << 15 });

  const directory = await mkdtemp(path.join(os.tmpdir(), "filesystem-"));
  try {
    for (let file = 0; file < count; file++) {
      await writeFile(path.join(directory, `${String(file).padStart(2, "0")}.log`), log(title, file, bytes));
    }
    const files = [];
    for (const name of (await readdir(directory)).sort()) files.push(await examine(directory, name));
    const lines = files.reduce((sum, file) => sum + file.lines, 0);
    const total = files.reduce((sum, file) => sum + file.sum, 0);
    return { files, summary: `${files.length} files, ${lines} lines, values of ${total}` };
  } finally {
    await rm(directory, { recursive: true });
  }
};
