// SPDX-License-Identifier: Apache-2.0 OR MIT
// Where the socket is, and whose it is.
'use strict';

const fs = require('fs');
const net = require('net');
const { isAbsolute } = require('path');
const { getSystemErrorMap } = require('util');

// What fits into sockaddr_un. Node cuts a longer path off.
const MOST_PATH_BYTES = 107;

function say(message) {
  try {
    fs.writeSync(2, `squeezy-reclaim: ${message.replace(/\p{Cc}/gu, '?')}\n`);
  } catch {
    // Nobody to say it to.
  }
}

function reason(error) {
  return getSystemErrorMap().get(error.errno)?.[1] ?? error.message;
}

function paths() {
  const own = `/tmp/squeezy-reclaim-${process.pid}.sock`;
  const named = process.env.SQUEEZY_RECLAIM_SOCKET;
  return named ? [named, own] : [own];
}

// Whether a living process listens there, to `then`. One whose queue is full (EAGAIN) lives.
function probe(path, then) {
  const socket = net.connect({ path });
  socket.unref();
  socket.once('connect', () => {
    socket.destroy();
    then(true);
  });
  socket.once('error', ({ code }) => then(code !== 'ECONNREFUSED' && code !== 'ENOENT'));
}

// Listens at the first of the paths that no living process has. Calls `listening` with the path.
function open(server, listening) {
  const [named, ...others] = paths();
  attempt(named, others);

  function fail(path, why) {
    say(`no socket at ${path}: ${why}; the process goes on without it`);
  }

  function attempt(path, rest) {
    if (!isAbsolute(path)) return fail(path, 'the path is not absolute');
    if (Buffer.byteLength(path) > MOST_PATH_BYTES) {
      return fail(path, `the path is too long: at most ${MOST_PATH_BYTES} bytes`);
    }
    try {
      const there = fs.lstatSync(path, { throwIfNoEntry: false });
      if (!there) listen(path);
      else if (!there.isSocket()) fail(path, 'there is a file that is no socket');
      else probe(path, (alive) => (alive ? leave(path, rest) : replace(path, there, rest)));
    } catch (error) {
      fail(path, reason(error));
    }
  }

  function leave(path, [next, ...rest]) {
    if (next) attempt(next, rest);
    else fail(path, 'another process listens there: set SQUEEZY_RECLAIM_SOCKET to another path');
  }

  function replace(path, dead, rest) {
    try {
      const there = fs.lstatSync(path, { throwIfNoEntry: false });
      // Somebody else may have put another there meanwhile.
      if (there && there.ino !== dead.ino) return attempt(path, rest);
      if (there) fs.unlinkSync(path);
      listen(path);
    } catch (error) {
      fail(path, reason(error));
    }
  }

  function listen(path) {
    server.once('error', (error) => {
      fail(path, reason(error));
      server.on('error', () => {});
    });
    // Exclusive: a worker of a cluster would ask its primary for a socket to share.
    server.listen({ path, exclusive: true });
    if (!server.listening) return;
    // Until here the umask says who may connect. To change that would be to change it for all threads.
    fs.chmodSync(path, 0o600);
    listening(path);
  }
}

module.exports = { open, say };
