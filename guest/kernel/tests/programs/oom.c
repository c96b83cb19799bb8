// SPDX-License-Identifier: GPL-2.0
/*
 * A full partition: what reclaim can give back is used first, then a process inside is killed,
 * and nobody else notices. The sizes are fractions of a partition, whatever its size.
 */
#define _GNU_SOURCE
#include "actor.h"
#include "harness.h"
#include "instance.h"
#include "memory.h"
#include "pages.h"
#include "squeezy.h"
#include "system.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#ifndef MAP_DROPPABLE
#define MAP_DROPPABLE 0x08
#endif

ACTOR(takes_twice_its_partition)
{
	/* The most likely victim of an OOM kill that is not confined is not this one. */
	fill(map_anon(percent(200)), percent(200), 1);
}

TEST(kills_inside_only)
{
	struct actor neighbour, outsider, glutton;
	u64 kills, global;
	char number[32];
	int log;

	require_partitions();
	kills = counter("oom_kills");
	global = oom_kills();
	neighbour = start_instance(ANY, percent(80));
	outsider = start_instance(NOBODY, 8 * MIB);
	log = kmsg_mark();
	glutton = actor_start(ANY, "takes_twice_its_partition", NULL);
	actor_join_killed(&glutton);
	ASSERT_EQ(counter("oom_kills"), kills + 1);
	snprintf(number, sizeof(number), "partition %d", glutton.partition);
	ASSERT(kmsg_has(log, "squeezy", number), "no line of the kernel names %s", number);
	assert_intact(&neighbour);
	assert_intact(&outsider);
	note("all kills: %llu", oom_kills() - global);
	/* It is as good as new. */
	ASSERT(WAIT_FOR(partition_is(glutton.partition, "free"), 5000), "%s",
	       partition_state(glutton.partition));
	glutton = start_instance(glutton.partition, percent(80));
	assert_intact(&glutton);
	actor_kill(&glutton);
}

/* A parent with little and a child with much: the child is what there is to gain. */
ACTOR(has_a_greedy_child)
{
	int status;
	pid_t pid;

	fill(map_anon(percent(10)), percent(10), 1);
	pid = OK(fork());
	if (!pid) {
		fill(map_anon(percent(150)), percent(150), 1);
		_exit(0);
	}
	OK(waitpid(pid, &status, 0));
	ASSERT_KILLED(status, "the child");
}

TEST(kills_the_process_that_has_most)
{
	struct actor parent;

	require_partitions();
	parent = actor_start(ANY, "has_a_greedy_child", NULL);
	actor_join(&parent);
}

/* Someone else inside has the memory; the one that faults is small. */
ACTOR(starves_beside_a_fat_child)
{
	int status, ends[2];
	char byte;
	pid_t pid;

	OK(pipe(ends));
	pid = OK(fork());
	if (!pid) {
		fill(map_anon(percent(70)), percent(70), 1);
		OK(write(ends[1], "x", 1));
		for (;;)
			pause();
	}
	ASSERT_EQ(read(ends[0], &byte, 1), 1);
	fill(map_anon(percent(50)), percent(50), 1);
	/* Its memory is free, and all of this filled, before it has ended. */
	ASSERT(WAIT_FOR(waitpid(pid, &status, WNOHANG) == pid, 5000), "nothing was killed");
	ASSERT_KILLED(status, "the child");
}

TEST(kills_the_fat_one_for_the_small_one)
{
	struct actor parent;

	require_partitions();
	parent = actor_start(ANY, "starves_beside_a_fat_child", NULL);
	actor_join(&parent);
}

TEST_INSIDE(lazily_freed_memory_is_taken_back_before_a_kill)
{
	char *first = map_anon(percent(62)), *second = map_anon(percent(62));

	fill(first, percent(62), 1);
	OK(madvise(first, percent(62), MADV_FREE));
	fill(second, percent(62), 2);
	ASSERT(filled(second, percent(62), 2), "lost");
	assert_range_in(second, percent(62), OK(squeezy_get(0)));
}

TEST_INSIDE(lazily_freed_huge_pages_are_taken_back_before_a_kill)
{
	char *first = map_huge(percent(62)), *second = map_anon(percent(62));

	fill(first, percent(62), 1);
	OK(madvise(first, percent(62), MADV_FREE));
	fill(second, percent(62), 2);
	ASSERT(filled(second, percent(62), 2), "lost");
}

TEST_INSIDE(partly_mapped_huge_pages_are_split_before_a_kill)
{
	u64 bytes = percent(75), at;
	char *first = map_huge(bytes), *second = map_anon(percent(60));

	fill(first, bytes, 1);
	if (read_field("/proc/self/smaps_rollup", "AnonHugePages") * KIB < bytes / 2)
		skip("no huge pages here");
	for (at = 0; at < bytes; at += HUGE_PAGE)
		OK(madvise(first + at + PAGE, HUGE_PAGE - PAGE, MADV_DONTNEED));
	fill(second, percent(60), 2);
	ASSERT(filled(second, percent(60), 2), "lost");
	for (at = 0; at < bytes; at += HUGE_PAGE)
		ASSERT_EQ(*(u64 *)(first + at), 1 + at);
}

TEST_INSIDE(droppable_memory_is_dropped_and_kills_nobody)
{
	u64 bytes = percent(150);
	char *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_ANONYMOUS | MAP_DROPPABLE,
			    -1, 0);

	if (memory == MAP_FAILED)
		skip("no MAP_DROPPABLE: %m");
	fill(memory, bytes, 1);
}

/* The kernel's own access is what fills the partition. */
ACTOR(reads_more_than_its_partition)
{
	u64 bytes = percent(150), at;
	int zero = OK(open("/dev/zero", O_RDONLY));
	char *memory = map_anon(bytes);

	for (at = 0; at < bytes; at += MIB) {
		ssize_t got = read(zero, memory + at, MIB);

		/* A short read tells that a fault failed: EFAULT would be the next answer. */
		ASSERT(got == (ssize_t)MIB, "read: %zd, %m", got);
	}
}

TEST(a_fault_in_the_kernel_is_a_kill_and_no_efault)
{
	struct actor actor;

	require_partitions();
	actor = actor_start(ANY, "reads_more_than_its_partition", NULL);
	actor_join_killed(&actor);
}

ACTOR(populates_more_than_its_partition)
{
	madvise(map_anon(percent(150)), percent(150), MADV_POPULATE_WRITE);
	FAIL("populated: %m");
}

TEST(populating_too_much_is_a_kill)
{
	struct actor actor;

	require_partitions();
	actor = actor_start(ANY, "populates_more_than_its_partition", NULL);
	actor_join_killed(&actor);
}

ACTOR(forks_until_it_is_full)
{
	char *memory = map_anon(percent(30)), byte;
	int i, status, ends[2];

	fill(memory, percent(30), 1);
	OK(pipe(ends));
	for (i = 0; i < 6; i++) {
		if (!OK(fork())) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			close(ends[1]);
			fill(memory, percent(30), 2);
			/* Its copy stays until one of them has been killed. */
			OK(read(ends[0], &byte, 1));
			_exit(0);
		}
	}
	OK(wait(&status));
	ASSERT_KILLED(status, "the first to end");
	close(ends[1]);
	while (wait(&status) > 0)
		;
}

TEST(a_storm_of_copies_is_killed_inside, .seconds = 120)
{
	struct actor neighbour, actor;
	int status;

	require_partitions();
	neighbour = start_instance(ANY, percent(50));
	actor = actor_start(ANY, "forks_until_it_is_full", NULL);
	status = actor_wait(&actor);
	/* Its parent may have been the one that had most. */
	ASSERT(status == 0 || (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL), "%#x", status);
	assert_intact(&neighbour);
}

/* Maps more than is free and lets somebody else write it. */
ACTOR(offers_more_than_its_partition)
{
	tell("%p", map_anon(percent(150)));
	hear();
}

TEST(an_outsider_that_fills_a_partition_survives)
{
	struct actor actor, outsider;
	char path[64], *remote, *local;
	u64 at, done = 0;
	ssize_t put;
	int fd;

	require_partitions();
	outsider = start_instance(NOBODY, 8 * MIB);
	actor = actor_start(ANY, "offers_more_than_its_partition", NULL);
	remote = (char *)strtoull(actor_hear(&actor), NULL, 0);
	snprintf(path, sizeof(path), "/proc/%d/mem", actor.pid);
	fd = OK(open(path, O_RDWR));
	local = map_anon(MIB);
	fill(local, MIB, 1);
	for (at = 0; at < percent(150); at += MIB) {
		put = pwrite(fd, local, MIB, (off_t)(uintptr_t)remote + at);
		if (put > 0)
			done += put;
		if (put != (ssize_t)MIB)
			break;
	}
	/* It ends with an error for the writer, or with a kill inside; the writer lives. */
	ASSERT_LE(done, partition_bytes());
	close(fd);
	assert_intact(&outsider);
	actor_kill(&actor);
}

/* One of many outside of partitions, each with less than an instance has. */
ACTOR(takes_ordinary_memory)
{
	u64 bytes = strtoull(argv[0], NULL, 0);

	fill(map_anon(bytes), bytes, 1);
	tell("filled");
	hear();
}

TEST(a_global_oom_spares_partitions, .seconds = 180)
{
	struct actor instance, hogs[64];
	u64 share, kills;
	int i, status, count;
	char text[32];

	require_partitions();
	share = percent(40);
	instance = start_instance(ANY, percent(85));
	kills = oom_kills();
	snprintf(text, sizeof(text), "%llu", share);
	count = ordinary_free() / share + 2;
	ASSERT_LE(count, 64);
	for (i = 0; i < count; i++)
		hogs[i] = actor_start(NOBODY, "takes_ordinary_memory", text, NULL);
	/* One of them must go; the instance has more memory than each, but not of this kind. */
	ASSERT(WAIT_FOR(oom_kills() > kills, 60000),
	       "no global OOM kill: %llu MiB free", ordinary_free() / MIB);
	for (i = 0; i < count; i++) {
		kill(hogs[i].pid, SIGKILL);
		status = actor_wait(&hogs[i]);
	}
	(void)status;
	ASSERT(actor_alive(&instance), "the instance was killed");
	assert_intact(&instance);
}

/* What is not confined is bounded by the instance's memory cgroup. */

ACTOR(takes_anonymous_memory_in_a_cgroup)
{
	u64 bytes = percent(75);

	enter_cgroup();
	fill(map_anon(bytes), bytes, 1);
	tell("%llu", read_field("/proc/self/smaps_rollup", "Anonymous") * KIB);
	hear();
}

TEST(partition_memory_is_not_charged_to_the_cgroup)
{
	struct actor actor;

	require_partitions();
	make_cgroup(16 * MIB);
	actor = actor_start(ANY, "takes_anonymous_memory_in_a_cgroup", NULL);
	ASSERT_GE(strtoull(actor_hear(&actor), NULL, 0), percent(75));
	ASSERT_LE(read_number(CGROUP "/memory.current"), 16 * MIB);
	ASSERT_EQ(read_field(CGROUP "/memory.events", "oom_kill"), 0);
	actor_kill(&actor);
	remove_cgroup();
}
