// Does what each line on standard input says, a JSON array of a command and its arguments, and answers with JSON.
'use strict';

const v8 = require('v8');
const readline = require('readline');

const MEBIBYTE = 1024 * 1024;
const RECORD_BYTES = 1024;

let held = [];
let weak;
let registry;
const finalized = [];

// A record of about a kibibyte on V8's heap, and what it must still be later on.
function record(number) {
  return { number, name: `record ${number}`, values: Array.from({ length: 100 }, (_, i) => number * i) };
}

function isRight({ number, name, values }) {
  return name === `record ${number}` && values.length === 100 && values.every((value, i) => value === number * i);
}

const commands = {
  hold(mebibytes) {
    held = Array.from({ length: (mebibytes * MEBIBYTE) / RECORD_BYTES }, (_, i) => record(i));
    return held.length;
  },
  // Every nth stays, so that no page is free as a whole.
  thin(n) {
    held = held.filter((_, i) => i % n === 0);
    return held.length;
  },
  check: () => held.every(isRight),
  garbage(mebibytes) {
    let records = [];
    for (let i = 0; i < (mebibytes * MEBIBYTE) / RECORD_BYTES; i++) records.push(record(i));
    const { length } = records;
    records = null;
    return length;
  },
  // Memory of malloc, in pieces with one that stays between each two, and freed.
  buffers(mebibytes) {
    const buffers = Array.from({ length: (mebibytes * MEBIBYTE) / 65536 }, (_, i) => Buffer.alloc(65536, i % 256));
    held = buffers.filter((_, i) => i % 64 === 0).map((buffer) => ({ buffer, value: buffer[0] }));
    return buffers.length;
  },
  checkBuffers: () => held.every(({ buffer, value }) => buffer.every((byte) => byte === value)),
  busy(milliseconds) {
    const end = Date.now() + milliseconds;
    while (Date.now() < end);
    return milliseconds;
  },
  statistics: () => v8.getHeapStatistics(),
  weak() {
    const keys = [{ key: 1 }, { key: 2 }];
    registry = new FinalizationRegistry((name) => finalized.push(name));
    registry.register(keys[1], 'second');
    weak = {
      living: keys[0],
      map: new WeakMap(keys.map((key) => [key, record(key.key)])),
      toLiving: new WeakRef(keys[0]),
      toDead: new WeakRef(keys[1]),
    };
    return true;
  },
  checkWeak: () => ({
    map: isRight(weak.map.get(weak.living)),
    toLiving: weak.toLiving.deref() === weak.living,
    toDead: weak.toDead.deref() !== undefined,
    finalized,
  }),
};

readline.createInterface({ input: process.stdin }).on('line', (line) => {
  const [command, ...rest] = JSON.parse(line);
  process.stdout.write(`${JSON.stringify(commands[command](...rest))}\n`);
});
