"use strict";

// A site: pages, made anew for each request, and notes, which visitors leave.

const crypto = require("node:crypto");
const { Notes } = require("./notes");

const MAX_ITEMS = 2000;
const MAX_NOTE_BYTES = 4096;

const tag = (text) => `"${crypto.createHash("sha1").update(text).digest("hex")}"`;

const json = (status, value) => ({ status, type: "application/json", text: JSON.stringify(value) });

function page(items) {
  const rows = Array.from({ length: items }, (_, index) => `<li>${index + 1} squared is ${(index + 1) ** 2}</li>`);
  return {
    status: 200,
    type: "text/html",
    text: `<!DOCTYPE html>\n<title>Squares</title>\n<ol>\n${rows.join("\n")}\n</ol>\n`,
  };
}

/** The answers of a site with its own notes. */
class Site {
  #notes = new Notes();

  #routes = [
    ["GET", /^\/pages\/(\d{1,4})$/, (items) => (items <= MAX_ITEMS ? page(Number(items)) : null)],
    ["GET", /^\/notes\/(\d{1,15})$/, (number) => this.#read(Number(number))],
    ["POST", /^\/notes$/, (body) => json(201, { number: this.#notes.add(body) })],
    ["DELETE", /^\/notes\/(\d{1,15})$/, (number) => (this.#notes.remove(Number(number)) ? json(200, {}) : null)],
  ];

  #read(number) {
    const note = this.#notes.get(number);
    return note === undefined ? null : { status: 200, type: "text/plain", text: note };
  }

  #find(method, path, body) {
    for (const [verb, pattern, answer] of this.#routes) {
      const match = verb === method && pattern.exec(path);
      if (match) return answer(match[1] ?? body);
    }
    return null;
  }

  async #answer(request) {
    const chunks = [];
    let size = 0;
    for await (const chunk of request) {
      size += chunk.length;
      // What is too large is read to its end and not kept.
      if (size <= MAX_NOTE_BYTES) chunks.push(chunk);
    }
    if (size > MAX_NOTE_BYTES) return json(413, { error: "too large" });
    const found = this.#find(request.method, request.url, Buffer.concat(chunks).toString("utf8"));
    return found ?? json(404, { error: "not found" });
  }

  /** What an HTTP server calls for each request. A client that goes away before its end gets no answer. */
  serve(request, response) {
    this.#respond(request, response).catch(() => response.destroy());
  }

  async #respond(request, response) {
    const { status, type, text } = await this.#answer(request);
    const etag = tag(text);
    const known = request.method === "GET" && request.headers["if-none-match"] === etag;
    response.writeHead(known ? 304 : status, { "Content-Type": type, ETag: etag });
    response.end(known ? "" : text);
  }
}

module.exports = { Site };
