"use strict";

// The bodies of requests, which anybody may have written.

// OpenWhisk's own limit for arguments, 1 MiB, with room for the envelope around them. Bytes.
const MAX_BYTES = (1 << 20) + (64 << 10);

/** A request that is not carried out, with the HTTP status that says so. */
class Refused extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

const isObject = (value) => typeof value === "object" && value !== null && !Array.isArray(value);

function parse(text) {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}

/** The body of a request: a JSON object, whose "value" is one, too. */
async function readObject(request) {
  const chunks = [];
  let size = 0;
  for await (const chunk of request) {
    size += chunk.length;
    // What is too large is read to its end and not kept, so that the client hears why.
    if (size <= MAX_BYTES) chunks.push(chunk);
    else chunks.length = 0;
  }
  if (size > MAX_BYTES) throw new Refused(413, `The body is larger than ${MAX_BYTES} bytes.`);
  const body = parse(Buffer.concat(chunks).toString("utf8"));
  const value = isObject(body) ? (body.value ?? {}) : null;
  if (!isObject(value)) throw new Refused(400, 'The body has to be a JSON object with an object "value".');
  return { ...body, value };
}

module.exports = { Refused, isObject, readObject };
