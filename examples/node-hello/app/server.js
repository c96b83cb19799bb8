"use strict";

// OpenWhisk's action interface over HTTP: POST /init once, then POST /run, one at a time.

const http = require("node:http");
const { load } = require("./loader");

const PORT = 8080;
// OpenWhisk's own limit for arguments, with room for the envelope around them. Bytes.
const MAX_REQUEST_BYTES = (1 << 20) + (64 << 10);
// OpenWhisk cuts the logs of activations apart at this line.
const END_OF_ACTIVATION = "XXX_THE_END_OF_A_WHISK_ACTIVATION_XXX\n";

// A request that is not carried out, with the HTTP status that says so.
class Refused extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

const isObject = (value) => typeof value === "object" && value !== null && !Array.isArray(value);

// Returns the body and its "value", a JSON object in a JSON object.
async function read(request) {
  const chunks = [];
  let size = 0;
  for await (const chunk of request) {
    size += chunk.length;
    // What is too large is read to its end and not kept, so that the client hears why.
    if (size <= MAX_REQUEST_BYTES) chunks.push(chunk);
  }
  if (size > MAX_REQUEST_BYTES) {
    throw new Refused(413, `The body is larger than ${MAX_REQUEST_BYTES} bytes.`);
  }
  let body;
  try {
    body = JSON.parse(Buffer.concat(chunks).toString("utf8"));
  } catch {
    body = null;
  }
  const value = isObject(body) ? body.value ?? {} : null;
  if (!isObject(value)) {
    throw new Refused(400, 'The body has to be a JSON object with an object "value".');
  }
  return { body, value };
}

let action = null;

async function init(request) {
  const { value } = await read(request);
  if (action) {
    throw new Refused(403, "Cannot initialize the action more than once.");
  }
  for (const [name, setting] of Object.entries(value.env ?? {})) {
    process.env[name] = typeof setting === "string" ? setting : JSON.stringify(setting);
  }
  try {
    action = load(value);
  } catch (error) {
    console.error(error);
    throw new Refused(502, `The action cannot be loaded: ${error.message}`);
  }
  return { ok: true };
}

async function run(request) {
  try {
    const { body, value } = await read(request);
    if (!action) {
      throw new Refused(409, "POST /init comes before POST /run.");
    }
    for (const [key, setting] of Object.entries(body)) {
      if (key !== "value" && setting !== null && typeof setting !== "object") {
        process.env[`__OW_${key.toUpperCase()}`] = String(setting);
      }
    }
    let result;
    try {
      // Nothing at all is what many actions return.
      result = (await action(value)) ?? {};
    } catch (error) {
      console.error(error);
      throw new Refused(502, `The action raised ${error}`);
    }
    if (!isObject(result)) {
      throw new Refused(502, "The action did not return a dictionary.");
    }
    return result;
  } finally {
    process.stdout.write(END_OF_ACTIVATION);
    process.stderr.write(END_OF_ACTIVATION);
  }
}

const routes = { "POST /init": init, "POST /run": run };

http
  .createServer(async (request, response) => {
    let status = 200;
    let answer;
    try {
      const route = routes[`${request.method} ${request.url}`];
      if (!route) {
        throw new Refused(404, "There is POST /init and POST /run.");
      }
      answer = JSON.stringify(await route(request));
    } catch (error) {
      // Whatever else an action does (a result that is no JSON, say) is its answer, not our end.
      status = error.status ?? 502;
      answer = JSON.stringify({ error: String(error.message) });
    }
    response.writeHead(status, { "Content-Type": "application/json" });
    response.end(answer);
  })
  .listen(PORT, "0.0.0.0");
