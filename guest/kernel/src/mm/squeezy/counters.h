/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef _MM_SQUEEZY_COUNTERS_H
#define _MM_SQUEEZY_COUNTERS_H

#include <linux/atomic.h>
#include <linux/types.h>

#define COUNTER(id, ...) SQUEEZY_##id,

enum squeezy_counter {
#include "counter_list.h"
	SQUEEZY_NR_COUNTERS
};

#undef COUNTER

extern const char * const squeezy_counter_names[SQUEEZY_NR_COUNTERS];
extern atomic64_t squeezy_counters[SQUEEZY_NR_COUNTERS];

static inline void squeezy_count(enum squeezy_counter counter, u64 n)
{
	atomic64_add(n, &squeezy_counters[counter]);
}

#endif /* _MM_SQUEEZY_COUNTERS_H */
