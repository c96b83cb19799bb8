// SPDX-License-Identifier: Apache-2.0 OR MIT
// node --require .../preload.js: from then on the process can be asked to give its free memory back (README.md).
'use strict';

// A worker thread has a heap of its own, which is not squeezed; the socket is the process's.
if (require('worker_threads').isMainThread) require('./lib/squeezer.js').start();
