// SPDX-License-Identifier: GPL-2.0
/* A straggler's free is seen at once, also after the lists of processors were set up anew. */
#define _GNU_SOURCE
#include "calls.h"
#include "failed.h"
#include "harness.h"
#include "host.h"
#include "memory.h"
#include "pages.h"
#include "squeezy.h"
#include "stragglers.h"
#include "system.h"

#include <unistd.h>

/* Sets per-CPU lists of all zones up again, as whoever tunes them does. */
static void tune_lists(int partition __attribute__((unused)))
{
	ASSERT(write_text("/proc/sys/vm/percpu_pagelist_high_fraction", "8"), "%m");
	ASSERT(write_text("/proc/sys/vm/percpu_pagelist_high_fraction", "0"), "%m");
}

/* The same, as a processor does that comes. */
static void turn_processor_off_and_on(int partition __attribute__((unused)))
{
	if (access("/sys/devices/system/cpu/cpu1/online", W_OK))
		skip("there is no processor to turn off");
	ASSERT(write_text("/sys/devices/system/cpu/cpu1/online", "0"), "%m");
	ASSERT(write_text("/sys/devices/system/cpu/cpu1/online", "1"), "%m");
}

/* The same for one zone, as whoever looks at a page that has failed does. */
static void have_a_page_fail(int partition)
{
	const u64 pfn = (partition_start(partition) + partition_managed(partition)) / PAGE - 1;

	ASSERT(is_called_free(pfn), "the last page is used");
	have_fail(pfn, HARD_OFFLINE);
}

/*
 * A free after that is seen nevertheless, by whoever frees. What ends on a list would be seen by
 * whoever empties that, as the next look for garbage does.
 */
static void assert_watched_after(void (*change)(int partition))
{
	struct stragglers left;
	int frees;

	require_partitions();
	left = leave_stragglers(ANY);
	ASSERT(WAIT_FOR(partition_is(left.partition, "quarantined"), PROMPT_MS), "%s",
	       partition_state(left.partition));
	change(left.partition);
	frees = count_calls(0, "__squeezy_page_freed");
	read_stragglers(&left);
	ASSERT_GE(counted_calls(frees), STRAGGLERS);
	close(frees);
	ASSERT(WAIT_FOR(partition_is(left.partition, "free"), PROMPT_MS), "%s, %llu pages are held",
	       partition_state(left.partition),
	       (partition_managed(left.partition) - partition_free(left.partition)) / PAGE);
	close(left.pipe);
}

TEST(a_free_is_seen_after_per_cpu_lists_were_tuned)
{
	assert_watched_after(tune_lists);
}

TEST(a_free_is_seen_after_a_processor_came)
{
	assert_watched_after(turn_processor_off_and_on);
}

TEST(a_free_is_seen_after_a_page_has_failed)
{
	const u64 corrupted = corrupted_bytes();

	require_host();
	assert_watched_after(have_a_page_fail);
	/* That page comes back with the next plug. */
	host_partitions(0, 20000);
	host_partitions(partitions(), 20000);
	ASSERT_EQ(corrupted_bytes(), corrupted);
}
