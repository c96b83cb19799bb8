"use strict";

// node server/server.js FUNCTION_DIRECTORY: OpenWhisk's action interface over HTTP, on the port in PORT (8080).
// With EAGER_GC=1 and --expose-gc the heap is collected after each request.

const http = require("node:http");
const path = require("node:path");
const { Action } = require("./action");
const { Refused, readObject } = require("./body");

// OpenWhisk cuts the logs of activations apart at this line.
const END_OF_ACTIVATION = "XXX_THE_END_OF_A_WHISK_ACTIVATION_XXX\n";

const directory = process.argv[2];
const port = Number(process.env.PORT ?? 8080);
const eager = process.env.EAGER_GC === "1";

function giveUp(message) {
  process.stderr.write(`server.js: ${message}\n`);
  process.exit(2);
}

if (!directory) giveUp("which function? give the directory of its index.js");
if (!Number.isInteger(port) || port < 1 || port > 65535) giveUp("PORT has to be a number from 1 to 65535");
if (eager && !global.gc) giveUp("EAGER_GC=1 needs node's --expose-gc");

const action = new Action(path.resolve(directory));
const routes = {
  "POST /init": (body) => action.init(body),
  "POST /run": (body) => action.run(body),
};

// What a request is answered with: a status and JSON. `body` is an Error where the request has none that is right.
async function answer(request, body) {
  try {
    const route = routes[`${request.method} ${request.url}`];
    if (!route) throw new Refused(404, "There is POST /init and POST /run.");
    if (body instanceof Error) throw body;
    return { status: 200, text: JSON.stringify(await route(body)) };
  } catch (error) {
    // A result that is no JSON is the function's doing, too.
    return { status: error.status ?? 502, text: JSON.stringify({ error: error.message }) };
  } finally {
    if (request.url === "/run") endActivation();
  }
}

function endActivation() {
  process.stdout.write(END_OF_ACTIVATION);
  process.stderr.write(END_OF_ACTIVATION);
}

async function serve(request, response, body) {
  const { status, text } = await answer(request, body);
  // Before the answer is sent: whoever has it may freeze this process at once.
  if (eager) global.gc();
  response.writeHead(status, { "Content-Type": "application/json", "Content-Length": Buffer.byteLength(text) });
  response.end(text);
}

// A request is carried out when its body is there and the one before it has been answered.
let turn = Promise.resolve();
http
  .createServer(async (request, response) => {
    const body = await readObject(request).catch((error) => error);
    turn = turn.then(() => serve(request, response, body)).catch(() => response.destroy());
  })
  .on("error", (error) => giveUp(`cannot listen on port ${port}: ${error.message}`))
  .listen(port, "127.0.0.1");
