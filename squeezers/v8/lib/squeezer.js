// SPDX-License-Identifier: Apache-2.0 OR MIT
// The squeezer of a process: what it says of itself, and its socket.
'use strict';

const net = require('net');
const collectors = require('./collectors.js');
const { MOST_CONNECTIONS, queue } = require('./connections.js');
const { parse } = require('./request.js');
const squeeze = require('./squeeze.js');
const { say, open } = require('./socket.js');

function hello(collector) {
  const { name, refused } = collector;
  return {
    squeezer: 1,
    runtime: 'v8',
    runtime_version: process.versions.node,
    collector: name,
    pid: process.pid,
    ...(refused && { refused }),
  };
}

// The answer to a line; throws when it is no request.
async function answer(collector, line) {
  const request = parse(line);
  if (collector.refused) return { ...squeeze.nothing, error: collector.refused };
  try {
    return await squeeze.squeeze(collector, request);
  } catch (error) {
    return { ...squeeze.nothing, error: `V8 did not collect: ${error.message}` };
  }
}

function start() {
  try {
    const collector = collectors.load();
    const serve = queue(hello(collector), (line) => answer(collector, line));
    // Half open, for a client that says all it has to say, ends its side, and listens.
    const server = net.createServer({ allowHalfOpen: true, pauseOnConnect: true }, serve);
    server.maxConnections = MOST_CONNECTIONS;
    server.unref();
    open(server, collector.removeAtExit);
  } catch (error) {
    say(`the squeezer cannot start: ${error.message}; the process goes on without it`);
  }
}

module.exports = { start };
