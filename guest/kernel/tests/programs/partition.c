// SPDX-License-Identifier: GPL-2.0
/* Plugging and unplugging whole partitions: what it costs, when it waits, what it says. */
#define _GNU_SOURCE
#include "actor.h"
#include "harness.h"
#include "host.h"
#include "instance.h"
#include "memory.h"
#include "squeezy.h"
#include "system.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* All that reclaim, compaction or migration would leave traces in. */
static u64 pages_moved(void)
{
	return read_field("/proc/vmstat", "pgmigrate_success") +
	       read_field("/proc/vmstat", "pgmigrate_fail") +
	       read_field("/proc/vmstat", "compact_migrate_scanned");
}

/* The device has the size before the kernel has counted, last of all, what it has done. */
static void assert_counted(const char *name, u64 expected)
{
	WAIT_FOR(counter(name) >= expected, PROMPT_MS);
	ASSERT_EQ(counter(name), expected);
}

TEST(one_request_and_no_migration, .seconds = 180)
{
	u64 requests, moved, unplugs, plugs, reclaims, guest_ns;
	struct actor others[255], actor;
	int n, i;

	require_partitions();
	require_host();
	n = partitions();
	host_partitions(n, 20000);
	for (i = 0; i < n; i++)
		others[i] = start_instance(i, percent(85));
	actor = others[n - 1];
	requests = counter("device_requests");
	unplugs = counter("unplugs");
	plugs = counter("plugs");
	guest_ns = counter("unplug_guest_ns");
	moved = pages_moved();
	reclaims = read_field("/proc/vmstat", "pgsteal_direct");
	actor_kill(&actor);
	host_resize(size_of_partitions(n - 1), 10000);
	assert_counted("unplugs", unplugs + 1);
	ASSERT_EQ(counter("device_requests"), requests + 1);
	ASSERT_EQ(pages_moved(), moved);
	ASSERT_EQ(read_field("/proc/vmstat", "pgsteal_direct"), reclaims);
	note("guest work of the unplug: %llu us", (counter("unplug_guest_ns") - guest_ns) / 1000);
	host_resize(size_of_partitions(n), 10000);
	assert_counted("plugs", plugs + 1);
	ASSERT_EQ(counter("device_requests"), requests + 2);
	for (i = 0; i < n - 1; i++) {
		assert_intact(&others[i]);
		actor_kill(&others[i]);
	}
}

/* The one that stays parts the others in two; gaps between the slots part them all. */
TEST(adjacent_partitions_share_a_request)
{
	u64 requests, unplugs, plugs, expected;
	struct actor actor;
	int n;

	require_partitions();
	require_host();
	n = partitions();
	if (n < 3)
		skip("%d partitions have no middle", n);
	host_partitions(n, 20000);
	expected = partition_bytes() % memory_block_bytes() ? n - 1 : 2;
	actor = start_instance(1, percent(85));
	requests = counter("device_requests");
	unplugs = counter("unplugs");
	plugs = counter("plugs");
	host_resize(size_of_partitions(1), 10000);
	assert_counted("unplugs", unplugs + n - 1);
	ASSERT_EQ(counter("device_requests"), requests + expected);
	host_resize(size_of_partitions(n), 10000);
	assert_counted("plugs", plugs + n - 1);
	ASSERT_EQ(counter("device_requests"), requests + 2 * expected);
	assert_intact(&actor);
	actor_kill(&actor);
}

TEST(a_shrink_before_the_exit_completes_at_the_exit)
{
	struct actor actor;
	u64 start;
	int n;

	require_partitions();
	require_host();
	n = partitions();
	actor = start_instance(n - 1, percent(85));
	host_request_size(size_of_partitions(0));
	ASSERT(host_wait_size(size_of_partitions(1), 10000), "%llu MiB", host_size() / MIB);
	ASSERT(WAIT_FOR(strstr(shrink_blocked(), "assigned 1"), PROMPT_MS), "'%s'",
	       shrink_blocked());
	sleep_ms(300);
	ASSERT_EQ(host_size(), size_of_partitions(1));
	assert_intact(&actor);
	start = now_ms();
	actor_kill(&actor);
	ASSERT(host_wait_size(size_of_partitions(0), PROMPT_MS), "%s", shrink_blocked());
	note("given back %llu ms after the kill", now_ms() - start);
	/* The device has the size before the kernel has heard so. */
	ASSERT(WAIT_FOR(!shrink_blocked()[0], PROMPT_MS), "%s", shrink_blocked());
	ASSERT(partition_is(n - 1, "unplugged"), "%s", partition_state(n - 1));
	host_partitions(n, 20000);
}

TEST(a_shrink_that_is_taken_back_takes_nothing)
{
	struct actor actor;

	require_partitions();
	require_host();
	host_partitions(1, 20000);
	actor = start_instance(0, percent(85));
	host_request_size(size_of_partitions(0));
	ASSERT(WAIT_FOR(shrink_blocked()[0], PROMPT_MS), "no reason is given");
	host_request_size(size_of_partitions(1));
	ASSERT(WAIT_FOR(!shrink_blocked()[0], PROMPT_MS), "%s", shrink_blocked());
	actor_kill(&actor);
	ASSERT(WAIT_FOR(partition_is(0, "free"), PROMPT_MS), "%s", partition_state(0));
	sleep_ms(200);
	ASSERT_EQ(host_size(), size_of_partitions(1));
	host_partitions(partitions(), 20000);
}

TEST(assigned_partitions_stay_and_free_ones_go)
{
	struct actor actor;
	int n, i;

	require_partitions();
	require_host();
	n = partitions();
	host_partitions(n, 20000);
	actor = start_instance(n / 2, percent(85));
	host_partitions(1, 20000);
	for (i = 0; i < n; i++)
		ASSERT(partition_is(i, i == n / 2 ? "assigned" : "unplugged"), "%d is %s", i,
		       partition_state(i));
	ASSERT_ERRNO(squeezy_assign(i == 0 ? 1 : 0, 0), EAGAIN);
	ASSERT_ERRNO(squeezy_assign(ANY, 0), EAGAIN);
	/* The next ones come into the lowest slots. */
	host_resize(size_of_partitions(2), 20000);
	ASSERT(WAIT_FOR(partition_is(n / 2 == 0 ? 1 : 0, "free"), PROMPT_MS), "%s",
	       partition_state(0));
	actor_kill(&actor);
	host_partitions(n, 20000);
}

TEST(sizes_between_are_rounded)
{
	require_partitions();
	require_host();
	host_partitions(1, 20000);
	/* Down for a plug. */
	host_request_size(size_of_partitions(2) - partition_bytes() / 4 / (4 * MIB) * 4 * MIB);
	sleep_ms(300);
	ASSERT_EQ(host_size(), size_of_partitions(1));
	host_partitions(2, 20000);
	/* Up for an unplug: what stays is what was asked for, and more. */
	host_request_size(size_of_partitions(1) + 4 * MIB);
	sleep_ms(300);
	ASSERT_EQ(host_size(), size_of_partitions(2));
	host_request_size(size_of_partitions(1));
	ASSERT(host_wait_size(size_of_partitions(1), 10000), "%llu", host_size());
	host_partitions(partitions(), 20000);
}

TEST(counters_of_memory_add_up)
{
	u64 total, sum = 0;
	int n, i;

	require_partitions();
	require_host();
	n = partitions();
	host_partitions(0, 20000);
	total = read_field("/proc/meminfo", "MemTotal") * KIB;
	for (i = 1; i <= n; i++) {
		host_partitions(i, 20000);
		sum += partition_managed(i - 1);
		ASSERT_EQ(partition_managed(i - 1), partition_bytes());
		ASSERT_EQ(partition_free(i - 1), partition_managed(i - 1));
		ASSERT_EQ(read_field("/proc/meminfo", "MemTotal") * KIB, total + sum);
	}
	ASSERT_LE(read_field("/proc/meminfo", "MemFree"), read_field("/proc/meminfo", "MemTotal"));
	ASSERT_LE(read_field("/proc/meminfo", "MemAvailable") * KIB, total);
}

/* What the host is owed is not looked for among what cannot be given. */
TEST(the_shared_partition_stays)
{
	require_partitions();
	require_host();
	if (!shared_bytes())
		skip("no shared partition");
	host_partitions(0, 20000);
	note("free outside: %llu MiB", ordinary_free() / MIB);
	host_partitions(partitions(), 20000);
}

TEST(a_busy_device_is_tried_again)
{
	u64 start;
	int n;

	require_partitions();
	require_host();
	n = partitions();
	host_partitions(n, 20000);
	host_device_busy(true);
	host_request_size(size_of_partitions(n - 1));
	sleep_ms(500);
	ASSERT_EQ(host_size(), size_of_partitions(n));
	/* While the device is tried again, it is not. */
	ASSERT(WAIT_FOR(partition_is(n - 1, "free"), PROMPT_MS), "%s", partition_state(n - 1));
	/* It is as usable as before. */
	start_instance(n - 1, percent(85));
	host_device_busy(false);
	host_request_size(size_of_partitions(n - 1));
	start = now_ms();
	ASSERT(host_wait_size(size_of_partitions(n - 1), 10000), "%llu, %s", host_size(),
	       shrink_blocked());
	note("unplugged %llu ms after the device was ready", now_ms() - start);
	host_device_busy(true);
	host_request_size(size_of_partitions(n));
	sleep_ms(500);
	ASSERT_EQ(host_size(), size_of_partitions(n - 1));
	host_device_busy(false);
	start = now_ms();
	ASSERT(host_wait_size(size_of_partitions(n), 10000), "%llu", host_size());
	note("plugged %llu ms after the device was ready", now_ms() - start);
}

/* The host changes its mind faster than the guest can follow: the device refuses (NACK). */
TEST(requests_that_change_all_the_time_settle)
{
	unsigned int seed = 1;
	int n, i;

	require_partitions();
	require_host();
	n = partitions();
	for (i = 0; i < 200; i++)
		host_request_size(size_of_partitions(rand_r(&seed) % (n + 1)));
	host_partitions(n, 20000);
	ASSERT_EQ(partitions_in_state("free"), n);
	host_partitions(0, 20000);
	ASSERT_EQ(partitions_in_state("free"), 0);
	host_partitions(n, 20000);
	for (i = 0; i < n; i++)
		ASSERT_EQ(partition_free(i), partition_managed(i));
}
