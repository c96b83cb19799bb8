// SPDX-License-Identifier: GPL-2.0
/*
 * Memory that fails: in use, the partition it was in is lost, visibly, and nothing else is. Free,
 * it is missing until the partition has been unplugged.
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

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

ACTOR(fills_all_but_a_page)
{
	const u64 size = partition_free(OK(squeezy_get(0))) - 4 * MIB;
	char *memory = map_anon(size);

	fill(memory, size, 1);
	ASSERT(filled(memory, size, 1), "lost");
	assert_confined(getpid(), size / PAGE);
}

TEST(a_free_page_that_fails_comes_back_with_the_next_plug, .may_leak = true)
{
	const u64 before = corrupted_bytes();
	struct actor actor;
	int partition = 0;

	require_partitions();
	require_host();
	host_partitions(1, 10000);
	while (!partition_is(partition, "free"))
		ASSERT(++partition < partitions(), "none is free");
	have_fail((partition_start(partition) + partition_bytes() / 2) / PAGE + 5, HARD_OFFLINE);
	ASSERT_EQ(corrupted_bytes(), before + PAGE);
	ASSERT_EQ(partition_free(partition), partition_bytes() - PAGE);
	ASSERT(partition_is(partition, "free"), "%s", partition_state(partition));

	/* It is of use all the same, and free again afterwards. */
	actor = actor_start(partition, "fills_all_but_a_page", NULL);
	actor_join(&actor);
	ASSERT(WAIT_FOR(partition_is(partition, "free"), 5000), "%s", partition_state(partition));

	host_partitions(0, 10000);
	ASSERT_EQ(corrupted_bytes(), before);
	host_partitions(partitions(), 10000);
	ASSERT_EQ(partition_free(partition), partition_bytes());
	actor = actor_start(partition, "fills_all_but_a_page", NULL);
	actor_join(&actor);
}

ACTOR(has_a_soft_error)
{
	char *memory = map_anon(4 * MIB);

	fill(memory, 4 * MIB, 1);
	OK(madvise(memory, PAGE, MADV_SOFT_OFFLINE));
	ASSERT(filled(memory, 4 * MIB, 1), "lost");
	assert_confined(getpid(), 4 * MIB / PAGE);
	tell("went on");
	hear();
}

static void assert_lost(int partition)
{
	ASSERT(WAIT_FOR(partition_is(partition, "quarantined") ||
			partition_is(partition, "draining"), 5000), "%s",
	       partition_state(partition));
	ASSERT_ERRNO(squeezy_assign(partition, 0), EAGAIN);
	/* The others come and go as ever. */
	host_resize(size_of_partitions(1), 10000);
	host_request_size(size_of_partitions(0));
	ASSERT(WAIT_FOR(strstr(shrink_blocked(), "quarantined") ||
			strstr(shrink_blocked(), "draining"), PROMPT_MS), "'%s'", shrink_blocked());
	note("shrink_blocked: %s", shrink_blocked());
	sleep_ms(300);
	ASSERT_EQ(host_size(), size_of_partitions(1));
	host_resize(size_of_partitions(partitions()), 10000);
}

TEST(soft_offline_replaces_the_page_and_quarantines_the_partition, .may_leak = true)
{
	struct actor actor;

	require_partitions();
	require_host();
	actor = actor_start(ANY, "has_a_soft_error", NULL);
	actor_hear(&actor);
	actor_kill(&actor);
	assert_lost(actor.partition);
}
