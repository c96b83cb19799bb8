// SPDX-License-Identifier: GPL-2.0
/* A straggler's free is seen at once, also after the lists of processors were set up anew. */
#define _GNU_SOURCE
#include "harness.h"
#include "memory.h"
#include "squeezy.h"
#include "stragglers.h"
#include "system.h"

#include <unistd.h>

/* Sets per-CPU lists of all zones up again, as whoever tunes them does. */
static void tune_lists(void)
{
	ASSERT(write_text("/proc/sys/vm/percpu_pagelist_high_fraction", "8"), "%m");
	ASSERT(write_text("/proc/sys/vm/percpu_pagelist_high_fraction", "0"), "%m");
}

/* The same, as a processor does that comes. */
static void turn_processor_off_and_on(void)
{
	if (access("/sys/devices/system/cpu/cpu1/online", W_OK))
		skip("there is no processor to turn off");
	ASSERT(write_text("/sys/devices/system/cpu/cpu1/online", "0"), "%m");
	ASSERT(write_text("/sys/devices/system/cpu/cpu1/online", "1"), "%m");
}

/* A free after that is seen nevertheless, at once. */
static void assert_watched_after(void (*change)(void))
{
	struct stragglers left;

	require_partitions();
	left = leave_stragglers(ANY);
	ASSERT(WAIT_FOR(partition_is(left.partition, "quarantined"), PROMPT_MS), "%s",
	       partition_state(left.partition));
	/* Until nobody looks without being told to for some seconds. */
	sleep_ms(4000);
	change();
	read_stragglers(&left);
	ASSERT(WAIT_FOR(partition_is(left.partition, "free"), 500), "%s, %llu pages are held",
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
