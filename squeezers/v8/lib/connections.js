// SPDX-License-Identifier: Apache-2.0 OR MIT
// One connection at a time, and on it one line at a time. None of it keeps the process alive.
'use strict';

const { clearTimeout, setImmediate, setTimeout } = require('timers');
const { nothing } = require('./squeeze.js');

const MOST_REQUEST_BYTES = 4096;
const LINE_DEADLINE_MS = 5000;
// The one that is served and those that wait for their turn. Others are closed at once.
const MOST_CONNECTIONS = 64;
const NEWLINE = 10;

const toLine = (message) => `${JSON.stringify(message)}\n`;

class Connection {
  #socket;
  #answer;
  #received = Buffer.alloc(0);
  #answering = false;
  #ended = false;
  #clock;

  // `answer` makes an answer of a line, or throws when that is no request.
  constructor(socket, hello, answer) {
    this.#socket = socket;
    this.#answer = answer;
    socket.on('data', (chunk) => this.#take(chunk));
    socket.on('end', () => {
      this.#ended = true;
      this.#proceed();
    });
    socket.on('close', () => this.#stopClock());
    this.#startClock();
    socket.write(toLine(hello), () => socket.resume());
  }

  #take(chunk) {
    this.#received = Buffer.concat([this.#received, chunk]);
    this.#proceed();
  }

  #proceed() {
    if (this.#answering || this.#socket.destroyed) return;
    const length = this.#received.indexOf(NEWLINE);
    if ((length === -1 ? this.#received.length : length) > MOST_REQUEST_BYTES) {
      this.#refuse(`the request is too long: at most ${MOST_REQUEST_BYTES} bytes`);
    } else if (length !== -1) {
      const line = this.#received.toString('utf8', 0, length);
      this.#received = this.#received.subarray(length + 1);
      this.#reply(line);
    } else if (this.#ended) {
      this.#socket.end();
    }
  }

  async #reply(line) {
    this.#answering = true;
    this.#stopClock();
    this.#socket.pause();
    let message;
    try {
      message = await this.#answer(line);
    } catch (error) {
      this.#refuse(error.message);
      return;
    }
    this.#startClock();
    // The next line only when this one is gone: what waits to be written has a bound, too.
    this.#socket.write(toLine(message), () => {
      this.#answering = false;
      this.#socket.resume();
      this.#proceed();
    });
  }

  #refuse(error) {
    this.#answering = true;
    this.#startClock();
    this.#socket.end(toLine({ ...nothing, error }), () => this.#socket.destroy());
  }

  #startClock() {
    this.#stopClock();
    const clock = setTimeout(() => {
      // The event loop may have been busy, or frozen, with the line there all the time: it is read first.
      setImmediate(() => {
        if (this.#clock === clock) this.#socket.destroy();
      });
    }, LINE_DEADLINE_MS).unref();
    this.#clock = clock;
  }

  #stopClock() {
    clearTimeout(this.#clock);
    this.#clock = undefined;
  }
}

// What serves the sockets that it is called with, in their order.
function queue(hello, answer) {
  const waiting = [];
  let serving = false;

  function next() {
    const socket = waiting.shift();
    serving = socket !== undefined;
    if (!serving) return;
    socket.once('close', next);
    new Connection(socket, hello, answer);
  }

  return (socket) => {
    socket.unref();
    // A client that is gone is no error of the program.
    socket.on('error', () => {});
    waiting.push(socket);
    if (!serving) next();
  };
}

module.exports = { MOST_CONNECTIONS, queue };
