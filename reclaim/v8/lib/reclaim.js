// SPDX-License-Identifier: Apache-2.0 OR MIT
// One reclaim, and what came of it.
'use strict';

const { getHeapStatistics } = require('v8');

// The program may put others in their place later on, to have a clock of its own.
const { cpuUsage, hrtime } = process;

const NANOSECONDS_PER_MICROSECOND = 1000;
const MEBIBYTE = 1 << 20;

// V8 moves a bounded part of the live objects in one go (12 MiB), and none where it had begun to mark for a collection
// of its own that was not to compact. So it is asked again while much is resident for little, and as that helps.
const MOST_COLLECTIONS = 3;

function isSpread({ total_physical_size: resident, used_heap_size: live }) {
  return resident > live * 1.15 + MEBIBYTE / 2;
}

const nothing = { before_bytes: 0, after_bytes: 0, live_bytes: 0, advised_bytes: 0, pause_ns: 0, cpu_ns: 0, error: null };

async function reclaim(collector, { heap, trim, level }) {
  const before = getHeapStatistics();
  const start = hrtime.bigint();
  const startOfCpu = cpuUsage();
  for (let collections = 0, resident = Infinity; heap && collections < MOST_COLLECTIONS; collections++) {
    // The addon has collected when it returns. To await that would let the program run before the clock is read.
    const collected = collector.collect(collections === 0 ? level : 'keep');
    if (collected) await collected;
    const left = getHeapStatistics();
    if (!isSpread(left) || resident - left.total_physical_size < MEBIBYTE) break;
    resident = left.total_physical_size;
  }
  if (trim) collector.trim();
  const cpu = cpuUsage(startOfCpu);
  const pause = hrtime.bigint() - start;
  const after = getHeapStatistics();
  return {
    before_bytes: before.total_physical_size,
    after_bytes: after.total_physical_size,
    live_bytes: heap ? after.used_heap_size : 0,
    advised_bytes: Math.max(0, before.total_heap_size - after.total_heap_size),
    pause_ns: Number(pause),
    cpu_ns: (cpu.user + cpu.system) * NANOSECONDS_PER_MICROSECOND,
    error: null,
  };
}

module.exports = { nothing, reclaim };
