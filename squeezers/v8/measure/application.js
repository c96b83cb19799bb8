// Two functions to squeeze. A small shop: a catalogue that stays, and requests that make objects, text, HTML and JSON
// out of it and leave garbage. And one tight function whose work is objects of three classes and nothing else. Does what
// each line on standard input says, a JSON array, and answers with JSON.
'use strict';

const { createHash } = require('crypto');
const readline = require('readline');

const KIBIBYTE = 1024;
const REQUESTS_OF_AN_INVOCATION = 6;

class Money {
  constructor(cents) {
    this.cents = cents;
  }

  add(other) {
    return new Money(this.cents + other.cents);
  }

  toString() {
    return (this.cents / 100).toFixed(2);
  }
}

class Product {
  constructor(number) {
    this.number = number;
    this.name = `Product ${number}`;
    this.price = new Money(199 + ((number * 7) % 5000));
    this.tags = [`a${number % 13}`, `b${number % 7}`];
    this.text = 'lorem ipsum dolor sit amet '.repeat(4) + number;
  }
}

class Line {
  constructor(product, quantity) {
    this.product = product;
    this.quantity = quantity;
    this.total = new Money(product.price.cents * quantity);
  }
}

class Hit {
  constructor(product, score) {
    this.product = product;
    this.score = score;
  }
}

class Page {
  constructor(html) {
    this.html = html;
    this.etag = createHash('sha256').update(html).digest('hex');
  }
}

const catalogue = new Map(Array.from({ length: 5000 }, (_, number) => [number, new Product(number)]));

const ENTITIES = { '&': '&amp;', '<': '&lt;', '>': '&gt;', '"': '&quot;' };

function escape(text) {
  return String(text).replace(/[&<>"]/g, (character) => ENTITIES[character]);
}

function row(product, number) {
  return `<tr><td>${escape(product.name)}</td><td>${number}</td><td>${product.price}</td><td>${escape(product.text)}</td></tr>`;
}

function page(title, rows) {
  return new Page(`<html><head><title>${escape(title)}</title></head><body><table>${rows}</table></body></html>`);
}

function one([, number]) {
  const product = catalogue.get(Number(number));
  return page(product.name, row(product, 1));
}

function search([, word]) {
  const hits = [];
  for (const product of catalogue.values()) {
    if (product.tags.includes(word) || product.name.endsWith(word)) {
      hits.push(new Hit(product, product.name.length + (product.number % 10)));
    }
  }
  hits.sort((a, b) => b.score - a.score || a.product.number - b.product.number);
  return page('Search', hits.slice(0, 50).map((hit) => row(hit.product, hit.score)).join(''));
}

function cart([, content]) {
  const lines = content.split(',').map((item) => {
    const [number, quantity] = item.split(':');
    return new Line(catalogue.get(Number(number)), Number(quantity));
  });
  const total = lines.reduce((sum, line) => sum.add(line.total), new Money(0));
  const json = JSON.stringify(lines.map((line) => ({ number: line.product.number, total: `${line.total}` })));
  return page(`Cart ${total} of ${JSON.parse(json).length}`, lines.map((line) => row(line.product, line.quantity)).join(''));
}

const ROUTES = [[/^\/products\/(\d+)$/, one], [/^\/search\?q=(\w+)$/, search], [/^\/cart\/([\d,:]+)$/, cart]];

function request(url) {
  for (const [pattern, respond] of ROUTES) {
    const match = pattern.exec(url);
    if (match) return respond(match);
  }
  throw new Error(`nothing at ${url}`);
}

let next = 0;

function url() {
  next++;
  if (next % 3 === 0) return `/products/${next % 5000}`;
  if (next % 3 === 1) return `/search?q=a${next % 13}`;
  return `/cart/${Array.from({ length: 60 }, (_, i) => `${(next * 31 + i * 17) % 5000}:${(i % 5) + 1}`).join()}`;
}

function shop() {
  for (let i = 0; i < REQUESTS_OF_AN_INVOCATION; i++) request(url());
}

class Item {
  constructor(number) {
    this.number = number;
    this.name = `item${number}`;
    this.tags = [number, number + 1];
    this.price = number * 1.1;
  }
}

class Group {
  constructor(key) {
    this.key = key;
    this.total = 0;
    this.items = [];
  }
}

class Sum {
  constructor(group) {
    this.key = group.key;
    this.total = group.total.toFixed(2);
    this.count = group.items.length;
  }
}

function objects(count = 2000) {
  const items = [];
  for (let i = 0; i < count; i++) items.push(new Item(i));
  const groups = new Map();
  for (const item of items) {
    const key = item.number % 97;
    let group = groups.get(key);
    if (!group) {
      group = new Group(key);
      groups.set(key, group);
    }
    group.total += item.price;
    group.items.push(item);
  }
  return JSON.stringify([...groups.values()].map((group) => new Sum(group))).length;
}

const WORK = {
  shop: { invocation: shop, hot: { Money, Line, Hit, Page, escape, row, page, one, search, cart, request, shop } },
  objects: { invocation: objects, hot: { Item, Group, Sum, objects } },
};
// One of each that an invocation leaves behind, as an instance may hold them on to.
const samples = [];
let held = [];

function record(number) {
  return { number, name: `record ${number}`, values: new Array(100).fill(number) };
}

const commands = {
  hold(mebibytes) {
    held = Array.from({ length: mebibytes * KIBIBYTE }, (_, i) => record(i));
  },
  // A quarter of what is held is replaced, here and there.
  churn() {
    for (let i = 0; i < held.length / 4; i++) held[(i * 2654435761) % held.length] = record(i);
  },
  sample() {
    samples.push(new Money(1).add(new Money(2)), new Line(catalogue.get(1), 2), new Hit(catalogue.get(1), 3), page('', ''));
    const group = new Group(1);
    samples.push(new Item(1), group, new Sum(group));
  },
  async invoke(work, times) {
    const { invocation } = WORK[work];
    const before = process.cpuUsage();
    const durations = [];
    for (let i = 0; i < times; i++) {
      const start = process.hrtime.bigint();
      invocation();
      durations.push(Number(process.hrtime.bigint() - start));
      // As between two requests: what V8 compiles meanwhile comes in.
      await new Promise((resolve) => setTimeout(resolve, 1));
    }
    const { user, system } = process.cpuUsage(before);
    return { durations, cpu_ns: (user + system) * 1000 };
  },
  // The share of the functions of an invocation that are optimised; needs --allow-natives-syntax.
  optimized(work) {
    const hot = Object.values(WORK[work].hot);
    const OPTIMIZED = 1 << 4;
    const status = new Function('f', 'return %GetOptimizationStatus(f)');
    return hot.filter((f) => status(f) & OPTIMIZED).length / hot.length;
  },
};

readline.createInterface({ input: process.stdin }).on('line', async (line) => {
  const [command, ...rest] = JSON.parse(line);
  process.stdout.write(`${JSON.stringify((await commands[command](...rest)) ?? null)}\n`);
});
