// SPDX-License-Identifier: GPL-2.0
/*
 * The first plug of a partition needs a memory map, for which there may be no memory. Run first:
 * the first two tests where base memory has room for the memory map of all partitions, and the
 * last where huge pages took most of it at boot.
 */
#define _GNU_SOURCE
#include "actor.h"
#include "harness.h"
#include "host.h"
#include "memory.h"
#include "squeezy.h"
#include "system.h"

#include <errno.h>
#include <unistd.h>

/* Beside what Linux keeps free. Less than the memory map of a partition of 768 MiB. */
#define LEFT	(8 * MIB)
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

#define LAMB	MIB

/*
 * While every plug takes the last pages for a moment, others may want one: these are killed for
 * them. All together they are too small for the memory map of a partition.
 */
ACTOR(is_killed_first)
{
	ASSERT(write_text("/proc/self/oom_score_adj", "1000"), "%m");
	fill(map_anon(LAMB), LAMB, 1);
	tell("ready");
	hear();
}

#define LAMBS	16

/* Takes ordinary memory until only so much is left, and stays. */
ACTOR(leaves_little)
{
	ASSERT(write_text("/proc/self/oom_score_adj", "-1000"), "%m");
	while (ordinary_free() > LEFT + read_number("/proc/sys/vm/min_free_kbytes") * KIB)
		fill(map_anon(STEP), STEP, 1);
	tell("full");
	hear();
}

/* Neither this process nor the harness that waits for it are to be killed for memory. */
static struct actor fill_ordinary_memory(struct actor *lambs)
{
	struct actor hog;
	char parent[64];
	int i;

	snprintf(parent, sizeof(parent), "/proc/%d/oom_score_adj", getppid());
	ASSERT(write_text(parent, "-999"), "%m");
	ASSERT(write_text("/proc/self/oom_score_adj", "-999"), "%m");
	for (i = 0; i < LAMBS; i++) {
		lambs[i] = actor_start(NOBODY, "is_killed_first", NULL);
		actor_hear(&lambs[i]);
	}
	hog = actor_start(NOBODY, "leaves_little", NULL);
	actor_hear(&hog);
	return hog;
}

TEST(full_ordinary_memory_keeps_no_partition_from_being_plugged, .seconds = 120)
{
	struct actor hog, lambs[LAMBS];
	u64 failures;
	int n, i;

	require_partitions();
	require_host();
	n = partitions();
	if (partitions_in_state("absent") != n)
		skip("this program has to run first");
	/* 64 bytes for each page. */
	if (n * partition_bytes() / 64 < LEFT + LAMBS * LAMB)
		skip("the memory map of %d partitions fits into what is left", n);
	failures = counter("plug_failures");
	hog = fill_ordinary_memory(lambs);
	host_resize(size_of_partitions(n), 30000);
	ASSERT(WAIT_FOR(partitions_in_state("free") == n, 5000), "%d", partitions_in_state("free"));
	ASSERT_EQ(counter("plug_failures"), failures);
	ASSERT(actor_alive(&hog), "the hog was killed");
	for (i = 0; i < LAMBS; i++)
		ASSERT(actor_alive(&lambs[i]), "somebody was killed for memory");
	actor_kill(&hog);
}

/* Nothing is under way or owed, and the device has plugged what the kernel says is. */
static bool device_agrees(void)
{
	return partitions_in_state("populating") + partitions_in_state("plugging") +
	       partitions_in_state("unplugging") + partitions_in_state("owed") == 0 &&
	       host_size() == size_of_partitions(partitions_in_state("free"));
}

TEST(without_memory_for_the_memory_map_a_plug_is_undone_and_tried_again, .seconds = 120)
{
	int n, plugged, wanted, log, round, owed = 0;
	struct actor hog, lambs[LAMBS];
	u64 failures;

	require_partitions();
	require_host();
	n = partitions();
	if (partitions_in_state("absent") != n)
		skip("this program has to run first");
	failures = counter("plug_failures");
	log = kmsg_mark();
	hog = fill_ordinary_memory(lambs);
	host_request_size(size_of_partitions(n));
	ASSERT(WAIT_FOR(counter("plug_failures") > failures, 20000),
	       "nothing failed; %llu MiB free", ordinary_free() / MIB);
	ASSERT(WAIT_FOR(device_agrees(), 10000), "%llu MiB", host_size() / MIB);
	plugged = partitions_in_state("free");
	wanted = plugged + 2;
	ASSERT(wanted <= n, "%d of %d are plugged", plugged, n);

	/* A plug that fails finds the request changed, or the host busy, when it is undone. */
	for (round = 0; round < 250; round++) {
		host_request_size(size_of_partitions(plugged + 1 + round % 2));
		if (round % 50 == 25)
			host_device_busy(true);
		sleep_ms(10);
		owed += partitions_in_state("owed");
		if (round % 50 == 45)
			host_device_busy(false);
	}
	host_device_busy(false);
	host_request_size(size_of_partitions(wanted));
	note("%llu failures, seen to be owed %d times", counter("plug_failures") - failures, owed);
	ASSERT(WAIT_FOR(device_agrees(), 10000), "%d owed, the device has %llu MiB",
	       partitions_in_state("owed"), host_size() / MIB);
	ASSERT(!kmsg_has(log, "marking device broken", ""), "the driver has given up");
	ASSERT(actor_alive(&hog), "the hog was killed");

	/* By itself, once there is memory. */
	ASSERT(write_text("/proc/sys/vm/nr_hugepages", "0"), "%m");
	actor_kill(&hog);
	ASSERT(host_wait_size(size_of_partitions(wanted), 20000), "%llu MiB", host_size() / MIB);
	ASSERT(WAIT_FOR(partitions_in_state("free") == wanted, 5000), "%d of %d",
	       partitions_in_state("free"), wanted);
	/* And as ever from then on. */
	host_partitions(0, 10000);
	host_partitions(wanted, 10000);
	ASSERT(WAIT_FOR(device_agrees(), 1000), "%llu MiB", host_size() / MIB);
	note("%d of %d partitions were plugged while there was no memory", plugged, n);
}
