// Works on data of all kinds from the first line on standard input to the second, and checks all of it. Then it says
// how often it checked what, and what was wrong, in one line of JSON.
'use strict';

const { createHash, randomBytes } = require('crypto');
const fs = require('fs/promises');
const net = require('net');
const os = require('os');
const path = require('path');
const { promisify } = require('util');
const { Worker } = require('worker_threads');
const zlib = require('zlib');

const gzip = promisify(zlib.gzip);
const gunzip = promisify(zlib.gunzip);
const hash = (data) => createHash('sha256').update(data).digest('hex');

// Long lived: every object with the text it must have.
const store = new Map();
let next = 0;

class Animal {
  constructor(name, legs) {
    this.name = name;
    this.legs = legs;
    this.toString = () => `${name} with ${legs}`;
  }
}

const kinds = {
  objects() {
    for (let i = 0; i < 200; i++) {
      const value = { id: next, list: [next, `${next}`, { deep: [next] }], set: new Set([next]), animal: new Animal(`n${next}`, next % 5) };
      store.set(next, { value, text: JSON.stringify(value) });
      next++;
    }
    for (let key = Math.max(0, next - 20000); key < next; key += 97) {
      const { value, text } = store.get(key) ?? {};
      if (!value) continue;
      if (JSON.stringify(value) !== text || !value.set.has(key) || `${value.animal}` !== `n${key} with ${key % 5}`) return `object ${key}`;
      if (key % 3 === 0) store.delete(key);
    }
    while (store.size > 8000) store.delete(store.keys().next().value);
    return null;
  },
  buffers() {
    for (const size of [1, 1000, 8192, 70000, 1 << 20]) {
      const buffer = randomBytes(size);
      const copy = new Uint8Array(buffer);
      if (hash(buffer) !== hash(copy)) return `buffer of ${size}`;
    }
    return null;
  },
  weakMaps() {
    const map = new WeakMap();
    const keys = Array.from({ length: 500 }, (_, i) => ({ i }));
    for (const key of keys) map.set(key, { value: key.i * 3, key });
    return () => (keys.every((key) => map.get(key).value === key.i * 3 && map.get(key).key === key) ? null : 'weak map');
  },
  strings() {
    let rope = '';
    for (let i = 0; i < 2000; i++) rope += String.fromCharCode(97 + (i % 26));
    const sliced = rope.slice(13, 1800);
    return () => (sliced[500] === String.fromCharCode(97 + (513 % 26)) && /x(y)z/.exec(rope)[1] === 'y' ? null : 'string');
  },
  closures() {
    const counters = Array.from({ length: 300 }, (_, i) => { let n = i; return () => n++; });
    counters.forEach((counter) => counter());
    return () => (counters.every((counter, i) => counter() === i + 1) ? null : 'closure');
  },
  compiled() {
    // New code, so that there is something to compile, and to throw away.
    const number = next;
    const f = new Function('x', `return x * ${number} + ${Math.random()} * 0`);
    const isRight = () => [...Array(200).keys()].every((i) => f(i) === i * number);
    return isRight() ? () => (isRight() ? null : 'compiled code') : 'compiled code';
  },
  numbers() {
    const doubles = Array.from({ length: 5000 }, (_, i) => i / 7);
    const number = next;
    const big = 2n ** 500n + BigInt(number);
    const typed = Float64Array.from(doubles);
    return () => (typed.every((x, i) => x === i / 7 && x === doubles[i]) && big - 2n ** 500n === BigInt(number) ? null : 'numbers');
  },
  async streams() {
    const data = randomBytes(100000);
    return hash(await gunzip(await gzip(data))) === hash(data) ? null : 'compressed data';
  },
  async files() {
    const name = path.join(os.tmpdir(), `v8-stress-${process.pid}`);
    const data = randomBytes(50000);
    await fs.writeFile(name, data);
    const back = await fs.readFile(name);
    await fs.unlink(name);
    return back.equals(data) ? null : 'file';
  },
  async timers() {
    const value = { at: next };
    await new Promise((resolve) => setTimeout(resolve, 1));
    return value.at <= next ? null : 'timer';
  },
  async generators() {
    async function* count() { for (let i = 0; i < 50; i++) { await Promise.resolve(); yield { i }; } }
    let sum = 0;
    for await (const { i } of count()) sum += i;
    return sum === 1225 ? null : 'generator';
  },
  async echo() {
    const data = randomBytes(200000);
    const server = net.createServer((socket) => socket.pipe(socket));
    await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
    const received = [];
    const socket = net.connect(server.address().port, '127.0.0.1');
    socket.end(data);
    for await (const chunk of socket) received.push(chunk);
    server.close();
    return Buffer.concat(received).equals(data) ? null : 'echo';
  },
  async workers() {
    const worker = new Worker('require("worker_threads").parentPort.on("message", (m) => require("worker_threads").parentPort.postMessage(m.map((x) => x * 2)))', { eval: true });
    const numbers = Array.from({ length: 1000 }, (_, i) => i);
    const doubled = await new Promise((resolve, reject) => {
      worker.once('message', resolve);
      worker.once('error', reject);
      worker.postMessage(numbers);
    });
    await worker.terminate();
    return doubled.every((x, i) => x === i * 2) ? null : 'worker';
  },
};

let ended = false;

async function work(name, checked, wrong) {
  while (!ended) {
    const outcome = await kinds[name]();
    // Some leave their check for later, when there has been a squeeze.
    await new Promise((resolve) => setTimeout(resolve, 5));
    const problem = typeof outcome === 'function' ? outcome() : outcome;
    if (problem) wrong.push(problem);
    checked[name]++;
  }
}

process.stdin.once('data', async () => {
  for (const event of ['data', 'end']) process.stdin.once(event, () => { ended = true; });
  const checked = Object.fromEntries(Object.keys(kinds).map((name) => [name, 0]));
  const wrong = [];
  await Promise.all(Object.keys(kinds).map((name) => work(name, checked, wrong)));
  process.stdout.write(`${JSON.stringify({ checked, wrong })}\n`, () => process.exit());
});
