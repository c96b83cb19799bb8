"use strict";

// A web server, and the visits of a browser to it, over TCP on this machine.

const http = require("node:http");
const { objects, text } = require("../common/arguments");
const { Site } = require("./site");

// It keeps no process alive. Where it cannot listen, the process ends.
const site = new Site();
const server = http.createServer((request, response) => site.serve(request, response)).unref();
const listening = new Promise((resolve, reject) => {
  server.once("error", reject).listen(0, "127.0.0.1", resolve);
});
const METHODS = ["GET", "POST", "DELETE"];

function visitOf(values, index) {
  const method = text(values, "method", { most: 6, otherwise: "GET" });
  if (!METHODS.includes(method))
    throw new RangeError(`method of visit ${index} has to be one of ${METHODS.join(", ")}`);
  const path = text(values, "path", { most: 200 });
  if (!/^\/[\w./-]*$/.test(path))
    throw new RangeError(`path of visit ${index} has to begin with / and have only letters, digits and . / - _`);
  const body = text(values, "body", { least: 0, most: 65536, otherwise: "" });
  const known = text(values, "etag", { least: 0, most: 64, otherwise: "" });
  if (!/^("[\da-f]*")?$/.test(known))
    throw new RangeError(`etag of visit ${index} has to be one that the server has given`);
  return { method, path, body, known };
}

/** Sends one request and reads what is answered. */
function visit({ method, path, body, known }) {
  return new Promise((resolve, reject) => {
    // A connection of its own: one that is kept may have been closed while the process was frozen.
    const options = { host: "127.0.0.1", port: server.address().port, agent: false };
    const headers = { "Content-Length": Buffer.byteLength(body), ...(known && { "If-None-Match": known }) };
    const request = http.request({ ...options, method, path, headers }, (response) => {
      const chunks = [];
      response.on("data", (chunk) => chunks.push(chunk));
      response.on("error", reject);
      response.on("end", () => {
        const text = Buffer.concat(chunks).toString("utf8");
        resolve({
          status: response.statusCode,
          type: response.headers["content-type"],
          etag: response.headers.etag,
          text,
        });
      });
    });
    request.on("error", reject);
    request.end(body);
  });
}

exports.main = async (values) => {
  const visits = objects(values, "visits", { most: 100 }).map(visitOf);
  await listening;
  const answers = [];
  for (const wanted of visits) answers.push(await visit(wanted));
  const summary = answers.map(({ status, text }) => `${status} ${Buffer.byteLength(text)}`).join(", ");
  return { answers, summary };
};
