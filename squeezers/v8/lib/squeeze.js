// SPDX-License-Identifier: Apache-2.0 OR MIT
// One squeeze, and what came of it.
'use strict';

const { getHeapStatistics } = require('v8');

// The program may put others in their place later on, to have a clock of its own.
const { cpuUsage, hrtime } = process;

const NANOSECONDS_PER_MICROSECOND = 1000;
const MEBIBYTE = 1 << 20;

// V8 moves a bounded part of the live objects in one go (12 MiB), and none where it had begun to mark for a collection
// of its own that was not to compact. So it is asked again while much is resident for little, and as that helps.
const MOST_COLLECTIONS = 3;

function isSpread({ resident, live }) {
  return resident > live * 1.15 + MEBIBYTE / 2;
}

const nothing = { before_bytes: 0, after_bytes: 0, live_bytes: 0, advised_bytes: 0, pause_ns: 0, cpu_ns: 0, error: null };

// V8's numbers, but for the page that new objects come from: V8 counts all of it.
function look(collector) {
  const { total_physical_size: physical, used_heap_size: live, total_heap_size: reserved } = getHeapStatistics();
  return { resident: Math.max(live, physical - collector.untouched()), live, reserved };
}

async function squeeze(collector, { heap, trim, level }) {
  const before = look(collector);
  const start = hrtime.bigint();
  const startOfCpu = cpuUsage();
  for (let collections = 0, last = Infinity; heap && collections < MOST_COLLECTIONS; collections++) {
    // The addon has collected when it returns. To await that would let the program run before the clock is read.
    const collected = collector.collect(collections === 0 ? level : 'keep');
    if (collected) await collected;
    const now = look(collector);
    if (!isSpread(now) || last - now.resident < MEBIBYTE) break;
    last = now.resident;
  }
  if (trim) collector.trim();
  const cpu = cpuUsage(startOfCpu);
  const pause = hrtime.bigint() - start;
  const after = look(collector);
  return {
    before_bytes: before.resident,
    after_bytes: after.resident,
    live_bytes: heap ? after.live : 0,
    advised_bytes: Math.max(0, before.reserved - after.reserved),
    pause_ns: Number(pause),
    cpu_ns: (cpu.user + cpu.system) * NANOSECONDS_PER_MICROSECOND,
    error: null,
  };
}

module.exports = { nothing, squeeze };
