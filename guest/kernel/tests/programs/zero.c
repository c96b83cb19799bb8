// SPDX-License-Identifier: GPL-2.0
/*
 * User space never sees a byte that somebody else wrote, and the guest zeroes nothing for a plug
 * or an unplug. Boot this with init_on_alloc=1 and with init_on_free=1 as well.
 */
#define _GNU_SOURCE
#include "actor.h"
#include "calls.h"
#include "harness.h"
#include "host.h"
#include "memory.h"
#include "squeezy.h"
#include "system.h"

#include <sched.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define ROUNDS 3

static u64 most(void)
{
	return partition_bytes() / 100 * 85 / HUGE_PAGE * HUGE_PAGE;
}

/* Reads before it writes, all bytes of all pages, then leaves a pattern in them. */
ACTOR(looks_and_soils)
{
	u64 bytes = most(), i;
	char *memory = atoi(argv[0]) ? map_huge(bytes) : map_anon(bytes);
	u64 *words = (u64 *)memory;

	/* Every other page by a write first, so that it is not the zero page that is seen. */
	for (i = PAGE; i < bytes; i += 2 * PAGE)
		memory[i] = 0;
	ASSERT(all_zero(memory, bytes), "memory of an earlier process");
	for (i = 0; i < bytes / sizeof(*words); i++)
		words[i] = 0xa5a5a5a5a5a5a5a5ull;
}

static void look_and_soil(int partition, const char *huge)
{
	struct actor actor = actor_start(partition, "looks_and_soils", huge, NULL);

	actor_join(&actor);
}

TEST(memory_of_the_last_one_is_zero_for_the_next, .seconds = 120)
{
	int round;

	require_partitions();
	for (round = 0; round < ROUNDS; round++)
		look_and_soil(0, round % 2 ? "1" : "0");
}

TEST(memory_is_zero_after_a_plug, .seconds = 180)
{
	int round;

	require_partitions();
	require_host();
	for (round = 0; round < ROUNDS; round++) {
		host_partitions(0, 20000);
		host_partitions(1, 20000);
		look_and_soil(0, round % 2 ? "1" : "0");
	}
	host_partitions(partitions(), 20000);
}

TEST(pages_between_processes_are_zero_at_once)
{
	struct actor first, second;

	require_partitions();
	/* The second waits for the very partition that the first one leaves. */
	first = actor_start(0, "looks_and_soils", "0", NULL);
	second = actor_start(0, "looks_and_soils", "1", NULL);
	actor_join(&first);
	actor_join(&second);
}

TEST(resizing_touches_no_memory)
{
	u64 before, after;
	int i;

	require_partitions();
	require_host();
	host_partitions(1, 20000);
	look_and_soil(0, "1");
	ASSERT(settle(), "in use");
	host_partitions(0, 20000);
	before = host_resident();
	for (i = 0; i < 3; i++) {
		host_partitions(1, 20000);
		host_partitions(0, 20000);
	}
	host_partitions(1, 20000);
	after = host_resident();
	/* A guest that zeroed what is plugged would have it all resident now. */
	ASSERT_LE(after, before + 4 * MIB);
	host_partitions(partitions(), 20000);
}

#define PROCESSORS_MAX 8
#define FUNCTIONS 3
/* Whatever of them this processor has: Linux clears every page with it. */
static const char * const clear_page[FUNCTIONS] = {
	"clear_page_orig", "clear_page_rep", "clear_page_erms"
};

/* By processor, as a resize works on any. */
static int counts[PROCESSORS_MAX][FUNCTIONS];
static int processors;

static void count_cleared_pages(void)
{
	int processor, i;

	processors = sysconf(_SC_NPROCESSORS_ONLN);
	ASSERT_LE(processors, PROCESSORS_MAX);
	for (processor = 0; processor < processors; processor++)
		for (i = 0; i < FUNCTIONS; i++)
			counts[processor][i] = count_calls_on(processor, clear_page[i]);
}

static u64 cleared_pages(void)
{
	int processor, i;
	u64 sum = 0;

	for (processor = 0; processor < processors; processor++)
		for (i = 0; i < FUNCTIONS; i++)
			sum += counted_calls(counts[processor][i]);
	return sum;
}

TEST(resizing_clears_no_page)
{
	u64 before, cleared;
	cpu_set_t here;
	char *memory;
	int i;

	require_partitions();
	require_host();
	host_partitions(1, 20000);
	ASSERT(settle(), "in use");
	/*
	 * munmap() drains its own processor's batch of pages on their way to the LRU, and no other.
	 * Pages in that of a processor that this ran on before would be freed, and cleared, later.
	 */
	CPU_ZERO(&here);
	CPU_SET(0, &here);
	OK(sched_setaffinity(0, sizeof(here), &here));
	count_cleared_pages();
	/* It counts indeed: with init_on_free=1 when they are freed. */
	before = cleared_pages();
	memory = map_anon(4 * MIB);
	fill(memory, 4 * MIB, 1);
	OK(munmap(memory, 4 * MIB));
	ASSERT_GE(cleared_pages() - before, 4 * MIB / PAGE);
	before = cleared_pages();
	for (i = 0; i < 4; i++) {
		host_partitions(0, 20000);
		host_partitions(1, 20000);
	}
	cleared = cleared_pages() - before;
	note("%llu pages were cleared, by all there is, while %llu were plugged and unplugged",
	     cleared, 4 * partition_bytes() / PAGE);
	/*
	 * Some 1% is what there is besides: the debug kernel notes much of each resize, and all
	 * that anybody frees meanwhile is cleared.
	 */
	ASSERT_LE(cleared, 4 * partition_bytes() / PAGE / 20);
	host_partitions(partitions(), 20000);
}
