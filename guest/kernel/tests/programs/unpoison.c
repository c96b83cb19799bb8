// SPDX-License-Identifier: GPL-2.0
/*
 * Memory that was said to have failed, and then that it has not, which only kernels made for tests
 * can be told: whoever keeps free pages has it again, and nothing is lost.
 */
#define _GNU_SOURCE
#include "actor.h"
#include "failed.h"
#include "harness.h"
#include "host.h"
#include "memory.h"
#include "pages.h"
#include "squeezy.h"
#include "system.h"
#include "zone.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <unistd.h>

#define DEBUGFS		"/sys/kernel/debug"
#define UNPOISON	DEBUGFS "/hwpoison/unpoison-pfn"

static void require_unpoison(void)
{
	if (mount("debugfs", DEBUGFS, "debugfs", 0, NULL) && errno != EBUSY)
		FAIL("debugfs on " DEBUGFS ": %m");
	if (access(UNPOISON, W_OK))
		skip("no memory is declared whole again: CONFIG_HWPOISON_INJECT");
}

static bool unpoison(u64 pfn)
{
	char text[32];

	snprintf(text, sizeof(text), "%#llx", pfn);
	return write_text(UNPOISON, text);
}

/* Has free page @pfn fail as writing to @file of sysfs has it fail, and undoes it. */
static void assert_free_again(const char *file, u64 pfn)
{
	const u64 before = corrupted_bytes();

	have_fail(pfn, file);
	ASSERT_EQ(corrupted_bytes(), before + PAGE);
	ASSERT(is_poisoned(pfn) && !is_called_free(pfn), "%s: it is free", file);

	ASSERT(unpoison(pfn), "%s: %m", file);
	ASSERT_EQ(corrupted_bytes(), before);
	ASSERT(!is_poisoned(pfn), "%s: it is marked", file);
	/* What is nobody's cannot be given back twice. */
	ASSERT(!unpoison(pfn) && errno == EBUSY, "%s: %m", file);
	ASSERT_EQ(corrupted_bytes(), before);
}

static const char *const files[] = { HARD_OFFLINE, SOFT_OFFLINE };

ACTOR(fills_its_partition)
{
	const u64 size = partition_free(own_partition()) - 4 * MIB;
	char *memory = map_anon(size);

	fill(memory, size, 1);
	ASSERT(filled(memory, size, 1), "lost");
}

TEST(a_free_page_of_a_partition)
{
	struct actor actor;
	u64 pfn;
	int i;

	require_partitions();
	require_host();
	require_unpoison();
	host_partitions(partitions(), 20000);
	pfn = (partition_start(0) + partition_managed(0) / 2) / PAGE + 5;
	for (i = 0; i < 2; i++) {
		assert_free_again(files[i], pfn);
		ASSERT(is_called_free(pfn), "it is not called free");
		ASSERT_EQ(partition_free(0), partition_managed(0));
		ASSERT(partition_is(0, "free"), "%s", partition_state(0));
	}
	actor = actor_start(0, "fills_its_partition", NULL);
	actor_join(&actor);
	/* Nothing is left for the unplug to put back. */
	host_partitions(0, 20000);
	host_partitions(partitions(), 20000);
	ASSERT_EQ(partition_free(0), partition_managed(0));
}

TEST(a_free_page_of_boot_memory)
{
	int i;

	require_unpoison();
	for (i = 0; i < 2; i++)
		assert_free_again(files[i], free_page_in("DMA32"));
}

static void go_on(int signal __attribute__((unused)))
{
}

/* Loses a page by this advice of madvise(2); SIGBUS tells it of some. */
ACTOR(loses_a_page)
{
	char *memory = map_anon(4 * MIB);
	u64 pfn;

	signal(SIGBUS, go_on);
	fill(memory, 4 * MIB, 1);
	pfn = pfn_of(memory);
	OK(madvise(memory, PAGE, atoi(argv[0])));
	tell("%llu", pfn);
	hear();
}

/* The partition is lost, as in poison.c, and is not any more. */
static void assert_found_again(int advice)
{
	const u64 before = corrupted_bytes();
	struct actor actor;
	char number[16];
	u64 pfn;

	require_partitions();
	require_unpoison();
	snprintf(number, sizeof(number), "%d", advice);
	actor = actor_start(ANY, "loses_a_page", number, NULL);
	pfn = strtoull(actor_hear(&actor), NULL, 10);
	ASSERT_EQ(corrupted_bytes(), before + PAGE);
	ASSERT_EQ(place_of(pfn), actor.partition);
	actor_kill(&actor);
	ASSERT(WAIT_FOR(partition_is(actor.partition, "quarantined"), PROMPT_MS), "%s",
	       partition_state(actor.partition));

	ASSERT(unpoison(pfn), "%m");
	ASSERT(WAIT_FOR(partition_is(actor.partition, "free"), PROMPT_MS), "%s",
	       partition_state(actor.partition));
	ASSERT_EQ(corrupted_bytes(), before);
	ASSERT(!is_poisoned(pfn) && is_called_free(pfn), "it is not free");
	ASSERT_EQ(partition_free(actor.partition), partition_managed(actor.partition));
}

TEST(a_page_that_was_replaced)
{
	assert_found_again(MADV_SOFT_OFFLINE);
}

TEST(a_page_that_was_lost)
{
	assert_found_again(MADV_HWPOISON);
}
