// SPDX-License-Identifier: GPL-2.0
/*
 * With LLFree and no host that takes anything, after other programs: nothing has ever waited for a
 * host, nor found its traces.
 */
#include "harness.h"
#include "llfree.h"

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
