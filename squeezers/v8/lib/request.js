// SPDX-License-Identifier: Apache-2.0 OR MIT
// What a client asks for, out of its line.
'use strict';

const isObject = (value) => typeof value === 'object' && value !== null && !Array.isArray(value);
const isBoolean = (value) => typeof value === 'boolean';

const DEFAULTS = { heap: true, trim: true, level: 'keep' };
const VALID = { heap: isBoolean, trim: isBoolean, level: (value) => value === 'keep' || value === 'all' };

function parse(line) {
  let message;
  try {
    message = JSON.parse(line);
  } catch {
    throw new Error('this is not JSON');
  }
  if (!isObject(message) || Object.keys(message).join() !== 'squeeze' || !isObject(message.squeeze)) {
    throw new Error('a request is {"squeeze":{...}}');
  }
  for (const [key, value] of Object.entries(message.squeeze)) {
    if (!Object.hasOwn(VALID, key)) throw new Error('a key is not known: heap, trim and level are');
    if (!VALID[key](value)) throw new Error(`${key} is wrong: heap and trim are true or false, level is "keep" or "all"`);
  }
  // JSON.parse() takes the last of several: no key or value that is known has a colon in it.
  if (line.split(':').length - 2 !== Object.keys(message.squeeze).length) throw new Error('a key is there twice');
  return { ...DEFAULTS, ...message.squeeze };
}

module.exports = { parse };
