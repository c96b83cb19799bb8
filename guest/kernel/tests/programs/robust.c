// SPDX-License-Identifier: GPL-2.0
/* Partitions beside what else looks at memory or takes it away, as root may. */
#define _GNU_SOURCE
#include "actor.h"
#include "harness.h"
#include "host.h"
#include "instance.h"
#include "memory.h"
#include "pages.h"
#include "squeezy.h"
#include "system.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#define MEMORY "/sys/devices/system/memory/"

/* Tries to take the memory blocks of a partition away by hand. */
static void assert_offline_refused(int partition)
{
	u64 start = partition_start(partition), end = start + partition_bytes(), block, at;
	char path[128];

	block = memory_block_bytes();
	for (at = start / block * block; at < end; at += block) {
		snprintf(path, sizeof(path), MEMORY "memory%llu/state", at / block);
		ASSERT(!access(path, W_OK), "%s: %m", path);
		ASSERT(!write_text(path, "offline"), "%s went offline", path);
		ASSERT(errno == EBUSY, "%s: %m", path);
		snprintf(path, sizeof(path), MEMORY "memory%llu/online", at / block);
		if (!access(path, W_OK)) {
			ASSERT(!write_text(path, "0"), "%s went offline", path);
			ASSERT(errno == EBUSY, "%s: %m", path);
		}
	}
}

TEST(offlining_a_block_by_hand_is_ebusy)
{
	struct actor actor;

	require_partitions();
	require_host();
	host_partitions(partitions(), 20000);
	assert_offline_refused(0);
	ASSERT_EQ(partition_free(0), partition_managed(0));
	actor = start_instance(0, percent(60));
	assert_offline_refused(0);
	assert_intact(&actor);
	actor_kill(&actor);
	ASSERT(settle(), "in use");
	host_partitions(0, 20000);
	assert_offline_refused(0);
	host_partitions(partitions(), 20000);
	/* No pageblock was left isolated: all of it can still be used. */
	actor = start_instance(0, percent(60));
	assert_intact(&actor);
	actor_kill(&actor);
}

TEST(kcore_reads_what_is_there_and_not_what_is_gone)
{
	int kcore = open("/proc/kcore", O_RDONLY), i, n;

	require_partitions();
	require_host();
	if (kcore < 0)
		skip("no /proc/kcore: %m");
	n = partitions();
	host_partitions(n, 20000);
	for (i = 0; i < n; i++)
		note("partition %d, plugged: %llu bytes", i,
		     read_kcore(kcore, partition_start(i), partition_start(i) + partition_bytes()));
	host_partitions(0, 20000);
	/* Zeroes or nothing; with unplugged-inaccessible=on a real read would end the VM. */
	for (i = 0; i < n; i++)
		note("partition %d, unplugged: %llu bytes", i,
		     read_kcore(kcore, partition_start(i), partition_start(i) + partition_bytes()));
	host_partitions(n, 20000);
}

static void walk_page_frames(const char *path)
{
	static u64 words[4096];
	int fd = open(path, O_RDONLY), i, n = partitions();

	if (fd < 0) {
		note("%s: %m", path);
		return;
	}
	for (i = 0; i < n; i++) {
		u64 pfn = partition_start(i) / PAGE, end = pfn + partition_bytes() / PAGE;

		for (; pfn < end; pfn += 4096)
			ASSERT(pread(fd, words, sizeof(words), pfn * 8) > 0, "%s: %m", path);
	}
	close(fd);
}

static void look_everywhere(void)
{
	static const char * const texts[] = {
		"/proc/zoneinfo", "/proc/buddyinfo", "/proc/pagetypeinfo", "/proc/meminfo",
		"/proc/vmstat", "/proc/iomem", "/sys/kernel/debug/page_owner",
		"/sys/kernel/debug/shrinker/count",
	};
	char buffer[4096];
	unsigned int i;

	walk_page_frames("/proc/kpageflags");
	walk_page_frames("/proc/kpagecount");
	walk_page_frames("/proc/kpagecgroup");
	for (i = 0; i < sizeof(texts) / sizeof(*texts); i++) {
		int fd = open(texts[i], O_RDONLY);
		ssize_t got;

		if (fd < 0)
			continue;
		while ((got = read(fd, buffer, sizeof(buffer))) > 0)
			;
		ASSERT(got == 0, "%s: %m", texts[i]);
		close(fd);
	}
}

TEST(page_frames_can_be_walked_in_every_state)
{
	struct actor actor;

	require_partitions();
	require_host();
	host_partitions(0, 20000);
	look_everywhere();
	host_partitions(partitions(), 20000);
	look_everywhere();
	actor = start_instance(ANY, percent(60));
	look_everywhere();
	actor_kill(&actor);
}

TEST(compaction_and_drop_caches_do_nothing_to_partitions)
{
	struct actor actor;
	int round;

	require_partitions();
	require_host();
	host_partitions(partitions(), 20000);
	for (round = 0; round < 2; round++) {
		actor = start_instance(0, percent(60));
		write_text("/proc/sys/vm/compact_memory", "1");
		drop_caches();
		assert_intact(&actor);
		actor_kill(&actor);
		ASSERT(WAIT_FOR(partition_is(0, "free"), 5000), "%s", partition_state(0));
		host_partitions(1 - round, 20000);
	}
	write_text("/proc/sys/vm/compact_memory", "1");
	host_partitions(partitions(), 20000);
}

#define CPU1 "/sys/devices/system/cpu/cpu1/online"

TEST(processors_come_and_go, .seconds = 120)
{
	struct actor actor;
	int round;

	require_partitions();
	if (access(CPU1, W_OK))
		skip("no second processor that can go: %m");
	for (round = 0; round < 5; round++) {
		actor = start_instance(ANY, percent(60));
		ASSERT(write_text(CPU1, "0"), "%m");
		assert_intact(&actor);
		actor_kill(&actor);
		/* The pages on the lists of the processor that went count as free. */
		ASSERT(WAIT_FOR(partition_is(actor.partition, "free"), 5000), "%s",
		       partition_state(actor.partition));
		actor = start_instance(ANY, percent(60));
		ASSERT(write_text(CPU1, "1"), "%m");
		actor_kill(&actor);
		ASSERT(settle(), "in use");
	}
}

/* Freezing and reclaiming what a cgroup has must not touch the partition's books. */
TEST(memory_reclaim_of_a_cgroup)
{
	struct actor actor;
	char pid[16];

	require_partitions();
	if (access("/sys/fs/cgroup/cgroup.procs", W_OK))
		skip("no cgroup v2");
	write_text("/sys/fs/cgroup/cgroup.subtree_control", "+memory");
	rmdir(CGROUP);
	OK(mkdir(CGROUP, 0755));
	actor = start_instance(ANY, percent(60));
	snprintf(pid, sizeof(pid), "%d", actor.pid);
	ASSERT(write_text(CGROUP "/cgroup.procs", pid), "%m");
	write_text(CGROUP "/memory.reclaim", "32M");
	assert_intact(&actor);
	actor_kill(&actor);
	ASSERT(WAIT_FOR(!rmdir(CGROUP), 5000), "rmdir: %m");
}

TEST(sysfs_files_cannot_be_written)
{
	require_partitions();
	ASSERT(!write_text("/sys/kernel/mm/squeezy/partitions", "1"), "written");
	ASSERT(!write_text("/sys/kernel/mm/squeezy/partition0/state", "free"), "written");
	ASSERT(!write_text("/sys/kernel/mm/squeezy/counters/plugs", "0"), "written");
}
