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
#include <unistd.h>

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

/*
 * While every plug takes the last pages for a moment, others may want one: these are killed for
 * them. All together they are too small for the memory map of a partition.
 */
ACTOR(is_killed_first)
{
	ASSERT(write_text("/proc/self/oom_score_adj", "1000"), "%m");
	fill(map_anon(2 * MIB), 2 * MIB, 1);
	tell("ready");
	hear();
}

#define LAMBS	4

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
	struct actor hog, lambs[LAMBS];
	char parent[64];
	int n, i, plugged;

	require_partitions();
	require_host();
	n = partitions();
	if (partitions_in_state("absent") != n)
		skip("this program has to run first");
	/* 64 bytes for each page. */
	if (n * partition_bytes() / 64 < LEFT + LAMBS * 2 * MIB)
		skip("the memory map of %d partitions is too small to fail", n);
	/* Huge pages have Linux keep more than that free. */
	ASSERT(write_text("/proc/sys/vm/min_free_kbytes", "2048"), "%m");
	failures = counter("plug_failures");
	/* Nor may they be this process and the harness that waits for it. */
	snprintf(parent, sizeof(parent), "/proc/%d/oom_score_adj", getppid());
	ASSERT(write_text(parent, "-999"), "%m");
	ASSERT(write_text("/proc/self/oom_score_adj", "-999"), "%m");
	for (i = 0; i < LAMBS; i++) {
		lambs[i] = actor_start(NOBODY, "is_killed_first", NULL);
		actor_hear(&lambs[i]);
	}
	hog = actor_start(NOBODY, "leaves_little", NULL);
	actor_hear(&hog);
	host_request_size(size_of_partitions(n));
	ASSERT(WAIT_FOR(counter("plug_failures") > failures, 20000), "nothing failed; %llu MiB free",
	       ordinary_free() / MIB);
	plugged = partitions_in_state("free");
	ASSERT(plugged < n, "all are plugged");
	ASSERT(actor_alive(&hog), "the hog was killed");
	/* By itself, once there is memory. */
	actor_kill(&hog);
	ASSERT(host_wait_size(size_of_partitions(n), 20000), "%llu MiB", host_size() / MIB);
	ASSERT(WAIT_FOR(partitions_in_state("free") == n, 5000), "%d", partitions_in_state("free"));
	note("%d of %d partitions were plugged before, after %llu failures", plugged, n,
	     counter("plug_failures") - failures);
}
