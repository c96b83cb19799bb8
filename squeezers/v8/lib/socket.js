// SPDX-License-Identifier: Apache-2.0 OR MIT
// Where the socket is, and whose it is.
'use strict';

const fs = require('fs');
const net = require('net');
const { dirname, isAbsolute } = require('path');
const { setTimeout } = require('timers');
const { getSystemErrorMap } = require('util');

// What fits into sockaddr_un. Node cuts a longer path off.
const MOST_PATH_BYTES = 107;
// Of its folder: there it is made in a folder of its own.
const MOST_FOLDER_BYTES = MOST_PATH_BYTES - '/.XXXXXX/s'.length;

const BETWEEN_PROBES_MS = 100;

function say(message) {
  try {
    fs.writeSync(2, `squeezer: ${message.replace(/\p{Cc}/gu, '?')}\n`);
  } catch {
    // Nobody to say it to.
  }
}

function reason(error) {
  return getSystemErrorMap().get(error.errno)?.[1] ?? error.message;
}

function paths() {
  const own = `/tmp/squeezer-${process.pid}.sock`;
  const named = process.env.SQUEEZER_SOCKET;
  return named ? [named, own] : [own];
}

// Whether a living process listens there, to `then`. One whose queue is full (EAGAIN) lives, and one that refuses may
// be about to listen: it is asked again.
function probe(path, then, again = true) {
  const socket = net.connect({ path });
  socket.unref();
  socket.once('connect', () => {
    socket.destroy();
    then(true);
  });
  socket.once('error', ({ code }) => {
    if (code !== 'ECONNREFUSED') then(code !== 'ENOENT');
    else if (again) setTimeout(probe, BETWEEN_PROBES_MS, path, then, false).unref();
    else then(false);
  });
}

// The number of an inode comes again, with another time.
const isSame = (one, other) => one.ino === other.ino && one.mtimeMs === other.mtimeMs;

// Calls `work` with a path beside another one that nobody else knows, and removes what is there then.
function inWorkshop(path, work) {
  const workshop = fs.mkdtempSync(`${dirname(path)}/.`);
  try {
    work(`${workshop}/s`);
  } finally {
    fs.rmSync(workshop, { recursive: true });
  }
}

// Removes a dead socket. Another process may be about to do so, too, and to listen there: whatever is at the path is
// looked at where nobody else knows it, and put back if it is another one by now.
function remove(path, dead) {
  inWorkshop(path, (taken) => {
    try {
      fs.renameSync(path, taken);
      if (!isSame(fs.lstatSync(taken), dead)) fs.linkSync(taken, path);
    } catch (error) {
      // Somebody else was faster, with its removal or with a socket of its own.
      if (error.code !== 'ENOENT' && error.code !== 'EEXIST') throw error;
    }
  });
}

// Listens at the first of the paths that no living process has. `removeAtExit` has a file that was linked to a path
// removed from there when the process ends; without it that is left to Node, which does so for a process that comes to
// its natural end.
function open(server, removeAtExit) {
  const [named, ...others] = paths();
  attempt(named, others);

  function fail(path, why) {
    say(`no socket at ${path}: ${why}; the process goes on without it`);
  }

  function attempt(path, rest) {
    if (!isAbsolute(path)) return fail(path, 'the path is not absolute');
    if (Buffer.byteLength(path) > MOST_PATH_BYTES || Buffer.byteLength(dirname(path)) > MOST_FOLDER_BYTES) {
      return fail(path, `the path is too long: at most ${MOST_PATH_BYTES} bytes, its folder ${MOST_FOLDER_BYTES}`);
    }
    try {
      // To listen in a folder that is not there is not permitted, if one believes libuv.
      fs.accessSync(dirname(path), fs.constants.W_OK);
      const there = fs.lstatSync(path, { throwIfNoEntry: false });
      if (!there) listen(path, rest);
      else if (!there.isSocket()) fail(path, 'there is a file that is no socket');
      else probe(path, (alive) => (alive ? leave(path, rest) : replace(path, there, rest)));
    } catch (error) {
      fail(path, reason(error));
    }
  }

  function leave(path, [next, ...rest]) {
    if (next) attempt(next, rest);
    else fail(path, 'another process listens there: set SQUEEZER_SOCKET to another path');
  }

  function replace(path, dead, rest) {
    try {
      const there = fs.lstatSync(path, { throwIfNoEntry: false });
      // Somebody else may have put another there meanwhile.
      if (there && isSame(there, dead)) remove(path, dead);
      attempt(path, rest);
    } catch (error) {
      fail(path, reason(error));
    }
  }

  function listen(path, rest) {
    server.once('error', (error) => {
      fail(path, reason(error));
      server.on('error', () => {});
    });
    if (removeAtExit) listenAtOnce(path, rest);
    else listenBy(path);
  }

  // The file is at its path from when a client may connect, and others may not.
  function listenAtOnce(path, rest) {
    inWorkshop(path, (made) => {
      try {
        if (!listenBy(made)) return;
        fs.linkSync(made, path);
        removeAtExit(made, path);
      } catch (error) {
        if (error.code !== 'EEXIST') throw error;
        // Somebody else was faster.
        server.close(() => attempt(path, rest));
      }
    });
  }

  function listenBy(path) {
    // Exclusive: a worker of a cluster would ask its primary for a socket to share.
    server.listen({ path, exclusive: true });
    // To change the umask instead would be to change it for all threads.
    if (server.listening) fs.chmodSync(path, 0o600);
    return server.listening;
  }
}

module.exports = { open, say };
