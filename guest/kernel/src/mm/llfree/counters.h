/* SPDX-License-Identifier: GPL-2.0-only */
/* What is counted since boot, over all zones. docs/abi.md explains the files. */
#ifndef _MM_LLFREE_COUNTERS_H
#define _MM_LLFREE_COUNTERS_H

#include <linux/atomic.h>
#include <linux/types.h>

/**
 * enum llfree_counter - events that have to do with the host
 * @LLFREE_EVICTED_ALLOCATIONS: allocations of memory that the host had discarded
 * @LLFREE_WAITS: waits for what the host had in hand
 * @LLFREE_WAIT_TIMEOUTS: those that ended while it still had
 * @LLFREE_WAIT_KILLS: those that ended because the process was killed
 * @LLFREE_INTERFERENCES: allocations that may have failed because of the host
 * @LLFREE_COUNTERS: how many there are
 */
enum llfree_counter {
	LLFREE_EVICTED_ALLOCATIONS,
	LLFREE_WAITS,
	LLFREE_WAIT_TIMEOUTS,
	LLFREE_WAIT_KILLS,
	LLFREE_INTERFERENCES,
	LLFREE_COUNTERS
};

extern atomic_long_t llfree_counters[LLFREE_COUNTERS];

static inline void llfree_count_event(enum llfree_counter counter)
{
	atomic_long_inc(&llfree_counters[counter]);
}

#endif
