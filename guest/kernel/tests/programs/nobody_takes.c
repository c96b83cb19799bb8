// SPDX-License-Identifier: GPL-2.0
/*
 * With LLFree and no host that takes anything, after other programs: nothing has ever waited for a
 * host, nor found its traces.
 */
#include "harness.h"
#include "system.h"

#include <stdio.h>

#define COUNTERS "/sys/kernel/mm/llfree/counters/"

static u64 event_count(const char *name)
{
	char path[128];

	snprintf(path, sizeof(path), COUNTERS "%s", name);
	return read_number(path);
}

TEST(nobody_has_waited)
{
	ASSERT_EQ(event_count("waits"), 0);
	ASSERT_EQ(event_count("wait_timeouts"), 0);
	ASSERT_EQ(event_count("wait_kills"), 0);
}

TEST(nothing_was_taken_or_changed)
{
	ASSERT_EQ(event_count("interferences"), 0);
	ASSERT_EQ(event_count("evicted_allocations"), 0);
}
