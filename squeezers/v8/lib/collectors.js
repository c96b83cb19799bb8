// SPDX-License-Identifier: Apache-2.0 OR MIT
// The ways to make V8 collect: the addon, and without it the inspector. README.md compares them.
'use strict';

const { setImmediate } = require('timers');

const TESTED = ['18', '20', '22'];

function withAddon() {
  const { collect, removeAtExit, trim, untouched } = require('../squeeze.node');
  return { name: 'addon', collect: (level) => collect(level === 'all'), trim, untouched, removeAtExit };
}

function withInspector() {
  const { Session } = require('inspector');
  const collect = () => new Promise((resolve, reject) => {
    const session = new Session();
    session.connect();
    session.post('HeapProfiler.collectGarbage', (error) => {
      // Not here: V8 calls with a lock held that disconnect() takes.
      setImmediate(() => session.disconnect());
      if (error) reject(error);
      else resolve();
    });
  });
  return { name: 'inspector', collect, trim() {}, untouched: () => 0 };
}

function load() {
  const { node } = process.versions;
  if (!TESTED.includes(node.split('.')[0])) {
    return { name: null, refused: `Node ${node} is not known: ${TESTED.join(', ')} are` };
  }
  for (const route of [withAddon, withInspector]) {
    try {
      return route();
    } catch {
      // Not built, built for another machine, or not allowed here: the next one.
    }
  }
  return { name: null, refused: 'the addon is not built, and this Node has no inspector' };
}

module.exports = { load };
