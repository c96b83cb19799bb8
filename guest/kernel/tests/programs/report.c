// SPDX-License-Identifier: GPL-2.0
/*
 * What an instance that lives on has freed goes back to the host on request, and nothing else
 * does. Boot this with a balloon that has free page reporting, and report_race.c and
 * report_device.c, too.
 */
#define _GNU_SOURCE
#include "actor.h"
#include "harness.h"
#include "host.h"
#include "memory.h"
#include "reporting.h"
#include "squeezy.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

static void free_blocks_go_back(const char *huge)
{
	struct actor actor, neighbour;
	u64 before, after, told, garbage, of_neighbour;

	require_reporting();
	garbage = percent(60);
	neighbour = start_with_garbage("30", "30", huge);
	actor = start_with_garbage("20", "60", huge);
	have(&actor, "free");
	have(&neighbour, "free");
	before = host_resident();
	told = reported(actor.partition);
	of_neighbour = reported(neighbour.partition);
	OK(report(actor.partition, ""));
	after = host_resident();
	told = reported(actor.partition) - told;
	note("%llu MiB freed, %llu MiB reported, resident %llu MiB less", garbage / MIB,
	     told / MIB, (before - after) / MIB);
	ASSERT_GE(told, garbage / 10 * 9);
	ASSERT_LE(told, partition_managed(actor.partition) - percent(20));
	ASSERT_LE(after, before - garbage / 10 * 9);
	/* The neighbour's garbage is its own business. */
	ASSERT_GE(after, before - told - 2 * MIB);
	ASSERT_EQ(reported(neighbour.partition), of_neighbour);
	ASSERT(partition_is(actor.partition, "assigned"), "%s", partition_state(actor.partition));
	ASSERT_EQ(partition_users(actor.partition), 1);

	assert_kept(&actor, "check");
	assert_kept(&neighbour, "check");
	assert_kept(&actor, "zero");
	have(&actor, "reuse");
	assert_kept(&actor, "check garbage");
	assert_kept(&actor, "check");
	assert_kept(&neighbour, "check");
	actor_kill(&actor);
	actor_kill(&neighbour);
}

TEST(free_pages_go_back)
{
	free_blocks_go_back("0");
}

TEST(free_huge_pages_go_back)
{
	free_blocks_go_back("1");
}

TEST(what_is_known_to_be_free_is_not_reported_again)
{
	struct actor actor;
	u64 told;

	require_reporting();
	actor = start_with_garbage("20", "60", "0");
	have(&actor, "free");
	OK(report(actor.partition, ""));
	told = reported(actor.partition);
	OK(report(actor.partition, ""));
	/* A block that was broken up meanwhile counts anew. */
	ASSERT_LE(reported(actor.partition) - told, 8 * MIB);
	have(&actor, "reuse");
	have(&actor, "free");
	told = reported(actor.partition);
	OK(report(actor.partition, ""));
	ASSERT_GE(reported(actor.partition) - told, percent(60) / 10 * 9);
	actor_kill(&actor);
}

TEST(small_blocks_go_back_down_to_the_order_that_is_asked_for)
{
	static const char * const orders[] = { "", "3", "0" };
	u64 half, told, before, sums[3];
	struct actor actor;
	int i;

	require_reporting();
	half = percent(60) / 2;
	actor = start_with_garbage("20", "60", "0");
	OK(report(actor.partition, "0"));
	have(&actor, "free some");
	before = host_resident();
	told = reported(actor.partition);
	for (i = 0; i < 3; i++) {
		OK(report(actor.partition, orders[i]));
		sums[i] = reported(actor.partition) - told;
		note("order %s: %llu of %llu MiB reported, resident %llu MiB less", orders[i],
		     sums[i] / MIB, half / MIB, (before - host_resident()) / MIB);
	}
	ASSERT_LE(sums[0], half / 4);
	ASSERT_LE(sums[0], sums[1]);
	ASSERT_LE(sums[1], sums[2]);
	ASSERT_GE(sums[2], half / 10 * 9);
	ASSERT_LE(sums[2], half + 8 * MIB);
	ASSERT_LE(host_resident(), before - half / 10 * 9);
	assert_kept(&actor, "check");
	actor_kill(&actor);
}

/* One report, with what it took; how much less is resident. */
static u64 measure(struct actor *actor, const char *order, u64 freed)
{
	static const char * const names[] = {
		"reported_bytes", "reported_blocks", "report_requests", "report_guest_ns",
		"report_device_ns",
	};
	u64 before[5], resident = host_resident(), cpu = host_device_cpu_ns(), less;
	int i;

	for (i = 0; i < 5; i++)
		before[i] = counter(names[i]);
	OK(report(actor->partition, order));
	cpu = host_device_cpu_ns() - cpu;
	less = resident - host_resident();
	for (i = 0; i < 5; i++)
		before[i] = counter(names[i]) - before[i];
	note("%llu MiB freed, order %s: %llu KiB in %llu blocks, %llu requests",
	     freed / MIB, *order ? order : "9", before[0] / KIB, before[1], before[2]);
	note("%llu us guest, %llu us device, %llu us host; resident %llu KiB less",
	     before[3] / 1000, before[4] / 1000, cpu / 1000, less / KIB);
	return less;
}

/* Numbers, for a VM with partitions of 768 MiB: what is freed in one piece, and scattered. */
TEST(what_a_report_takes, .seconds = 300)
{
	static const char * const sizes[] = { "9", "68" };
	struct actor actor;
	unsigned int i, round;
	u64 freed;

	require_reporting();
	for (i = 0; i < 2; i++) {
		freed = percent(atoi(sizes[i]));
		actor = start_with_garbage("10", sizes[i], "0");
		OK(report(actor.partition, "0"));
		for (round = 0; round < 5; round++) {
			have(&actor, "free");
			ASSERT_GE(measure(&actor, "", freed), freed / 10 * 9);
			have(&actor, "reuse");
		}
		have(&actor, "free some");
		measure(&actor, "", freed / 2);
		measure(&actor, "3", freed / 2);
		measure(&actor, "0", freed / 2);
		assert_kept(&actor, "check");
		actor_kill(&actor);
	}
}

static void writes_without_the_capability(void *data)
{
	int fd = *(int *)data;

	OK(setresuid(65534, 65534, 65534));
	ASSERT_ERRNO(write(fd, "\n", 1), EPERM);
}

TEST(errors)
{
	static const char * const nonsense[] = { "11", "-1", "0x", "nine", "9 9", "4294967296" };
	struct actor actor;
	char name[256];
	unsigned int i;
	int fd;

	require_partitions();
	require_host();
	host_partitions(partitions() - 1, 20000);
	ASSERT_ERRNO(report(0, ""), ENODATA);
	ASSERT_ERRNO(report(partitions() - 1, ""), ENODATA);
	actor = start_with_garbage("5", "5", "0");
	for (i = 0; i < sizeof(nonsense) / sizeof(*nonsense); i++)
		ASSERT_ERRNO(report(actor.partition, nonsense[i]), EINVAL);
	fd = OK(open("/sys/kernel/mm/squeezy/partition0/report", O_WRONLY));
	in_child_ok(writes_without_the_capability, &fd);
	ASSERT_ERRNO(open("/sys/kernel/mm/squeezy/partition0/report", O_RDONLY), EACCES);
	if (!find_balloon(name, sizeof(name)))
		ASSERT_ERRNO(report(actor.partition, ""), EOPNOTSUPP);
	else
		OK(report(actor.partition, ""));
	assert_kept(&actor, "check");
	actor_kill(&actor);
	host_partitions(partitions(), 20000);
}

static u64 host_all_resident(void)
{
	return host_base_resident() + host_resident();
}

/* Fills ordinary or shared memory, lets go of it, and waits; how much less the host has. */
static u64 freed_by_itself(unsigned int ms)
{
	u64 bytes = 64 * MIB, before, after;
	char *memory = map_anon(bytes);

	fill(memory, bytes, 1);
	before = host_all_resident();
	OK(munmap(memory, bytes));
	WAIT_FOR((after = host_all_resident()) + bytes / 2 < before, ms);
	return before > after ? before - after : 0;
}

TEST(linux_reports_nothing_by_itself)
{
	require_reporting();
	ASSERT_LE(freed_by_itself(5000), 8 * MIB);
}

/* With squeezy.background_reporting=1: as stock, except for partitions. */
TEST(linux_reports_all_but_partitions_by_itself)
{
	struct actor actor;
	u64 freed, told;

	require_reporting();
	actor = start_with_garbage("20", "60", "0");
	have(&actor, "free");
	told = reported(actor.partition);
	freed = freed_by_itself(30000);
	note("%llu MiB went back", freed / MIB);
	ASSERT_GE(freed, 32 * MIB);
	/* What it had reported would be left out here. */
	OK(report(actor.partition, ""));
	ASSERT_GE(reported(actor.partition) - told, percent(60) / 10 * 9);
	actor_kill(&actor);
}
