// A primary of a cluster with two workers, a forked child and a worker thread. Says who there is, in one line of
// JSON, when all of them answer, and ends when its standard input does.
'use strict';

const { fork } = require('child_process');
const cluster = require('cluster');
const http = require('http');
const { Worker, isMainThread } = require('worker_threads');

const WORKERS = 2;

function primary() {
  const child = fork(__filename, ['child']);
  const ready = [new Promise((resolve) => child.once('message', resolve))];
  const threads = [new Worker(__filename), new Worker(__filename, { argv: ['thread'] })];
  for (const thread of threads) ready.push(new Promise((resolve) => thread.once('message', resolve)));
  for (let i = 0; i < WORKERS; i++) {
    const worker = cluster.fork();
    ready.push(new Promise((resolve) => worker.once('listening', ({ port }) => resolve({ worker: worker.process.pid, port }))));
  }
  process.stdin.resume().once('end', async () => {
    child.kill();
    await Promise.all(threads.map((thread) => thread.terminate()));
    cluster.disconnect();
  });
  Promise.all(ready).then((members) => console.log(JSON.stringify([{ primary: process.pid }, ...members])));
}

if (!isMainThread) {
  const { parentPort } = require('worker_threads');
  parentPort.postMessage({ thread: true });
  parentPort.on('message', () => {});
} else if (process.argv[2] === 'child') {
  process.send({ child: process.pid });
  process.on('disconnect', () => process.exit());
} else if (cluster.isPrimary) {
  primary();
} else {
  http.createServer((_, response) => response.end(`${process.pid}`)).listen(0, '127.0.0.1');
}
