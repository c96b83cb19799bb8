// SPDX-License-Identifier: GPL-2.0
/*
 * Has the host take free memory out of the guest every 20 ms, while the programs between these
 * tests run. The host sees at the end that it did, and so does the guest.
 */
#include "harness.h"
#include "host.h"
#include "llfree.h"

TEST(begins)
{
	host_take();
}

TEST(has_taken, .may_leak = true)
{
	ASSERT_GE(event_count("evicted_allocations"), 1);
}
