// SPDX-License-Identifier: GPL-2.0-only
#include "counters.h"

#define COUNTER(id, name) \
	[SQUEEZY_##id] = (name),

const char * const squeezy_counter_names[SQUEEZY_NR_COUNTERS] = {
#include "counter_list.h"
};

atomic64_t squeezy_counters[SQUEEZY_NR_COUNTERS];
