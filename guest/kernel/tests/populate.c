// SPDX-License-Identifier: GPL-2.0
/* The first plug of a partition needs a memory map, for which there may be no memory. Run first. */
#define _GNU_SOURCE
#include "harness.h"
#include "host.h"
#include "squeezy.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define LEFT	(14 * MIB)
#define STEP	(512 * KIB)

TEST(partitions_are_absent_until_they_are_plugged)
{
	int n, i;

	require_partitions();
	n = partitions();
	for (i = 0; i < n; i++) {
		if (!partition_is(i, "absent"))
			skip("partition %d is %s: this program has to run first", i,
			     partition_state(i));
		ASSERT_EQ(partition_managed(i), 0);
		ASSERT_EQ(partition_free(i), 0);
		ASSERT_EQ(partition_users(i), 0);
	}
	ASSERT_ERRNO(squeezy_assign(ANY, 0), EAGAIN);
	ASSERT_ERRNO(squeezy_assign(0, 0), EAGAIN);
}

/* Takes ordinary memory until only so much is left, and stays. */
ACTOR(leaves_little)
{
	ASSERT(write_text("/proc/self/oom_score_adj", "-1000"), "%m");
	while (ordinary_free() > LEFT)
		fill(map_anon(STEP), STEP, 1);
	tell("full");
	hear();
}

TEST(without_memory_for_the_memory_map_a_plug_is_undone_and_tried_again, .seconds = 120)
{
	u64 failures;
	struct actor hog;
	int n, plugged;

	require_partitions();
	require_host();
	n = partitions();
	if (partitions_in_state("absent") != n)
		skip("this program has to run first");
	/* 64 bytes for each page. */
	if (n * partition_bytes() / 64 < LEFT)
		skip("the memory map of %d partitions is too small to fail", n);
	failures = counter("plug_failures");
	hog = actor_start(NOBODY, "leaves_little", NULL);
	actor_hear(&hog);
	host_request_size(size_of_partitions(n));
	ASSERT(WAIT_FOR(counter("plug_failures") > failures, 20000), "nothing failed; %llu MiB free",
	       ordinary_free() / MIB);
	plugged = partitions_in_state("free");
	note("%d of %d partitions were plugged", plugged, n);
	ASSERT(plugged < n, "all are plugged");
	ASSERT(actor_alive(&hog), "somebody was killed for a memory map");
	ASSERT(WAIT_FOR(host_size() == size_of_partitions(partitions_in_state("free")), 5000),
	       "the device has %llu MiB", host_size() / MIB);
	/* By itself, once there is memory. */
	actor_kill(&hog);
	ASSERT(host_wait_size(size_of_partitions(n), 20000), "%llu MiB", host_size() / MIB);
	ASSERT(WAIT_FOR(partitions_in_state("free") == n, 5000), "%d", partitions_in_state("free"));
}
