// SPDX-License-Identifier: GPL-2.0
/*
 * Life at the limit of a partition: who is killed there, with whom, and what the search for memory
 * costs everybody else.
 */
#define _GNU_SOURCE
#include "actor.h"
#include "harness.h"
#include "host.h"
#include "memory.h"
#include "pages.h"
#include "squeezy.h"
#include "system.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static void never_kill_me(void)
{
	ASSERT(write_text("/proc/self/oom_score_adj", "-1000"), "oom_score_adj: %m");
}

/* Maps a file beside its memory, so that it has the most pages, but not of the partition. */
ACTOR(has_file_pages)
{
	int data = OK(open(IMAGE "data", O_RDONLY)), status;
	struct stat stat;
	const char *file;
	u64 at, sum = 0;
	char *memory;
	pid_t pid;

	OK(fstat(data, &stat));
	file = mmap(NULL, stat.st_size, PROT_READ, MAP_SHARED, data, 0);
	ASSERT(file != MAP_FAILED, "mmap: %m");
	for (at = 0; at < (u64)stat.st_size; at += PAGE)
		sum += file[at];
	memory = map_anon(percent(44));
	fill(memory, percent(44), sum);
	pid = OK(fork());
	if (!pid) {
		OK(munmap((void *)file, stat.st_size));
		OK(munmap(memory, percent(44)));
		fill(map_anon(percent(100)), percent(100), 1);
		_exit(0);
	}
	OK(waitpid(pid, &status, 0));
	ASSERT_KILLED(status, "the one with most of the partition");
	ASSERT(filled(memory, percent(44), sum), "lost");
}

TEST(kills_who_holds_most_of_the_partition)
{
	struct actor actor;

	require_partitions();
	require_image_file("data");
	actor = actor_start(ANY, "has_file_pages", NULL);
	actor_join(&actor);
}

static void make_group(void)
{
	make_cgroup(NO_LIMIT);
	ASSERT(write_text(CGROUP "/memory.oom.group", "1"), "memory.oom.group: %m");
}

ACTOR(is_in_the_group)
{
	enter_cgroup();
	tell("ready");
	hear();
}

/* Of a parent and its child, the child has the memory. */
ACTOR(has_a_greedy_child_in_its_group)
{
	int status;

	enter_cgroup();
	if (!OK(fork())) {
		fill(map_anon(percent(150)), percent(150), 1);
		_exit(0);
	}
	OK(wait(&status));
	FAIL("has outlived its child");
}

TEST(memory_oom_group_is_honoured_inside)
{
	struct actor elsewhere, ordinary, parent;
	u64 kills;

	require_partitions();
	make_group();
	/* They are of the group, but not in the partition. */
	elsewhere = actor_start(ANY, "is_in_the_group", NULL);
	actor_hear(&elsewhere);
	ordinary = actor_start(NOBODY, "is_in_the_group", NULL);
	actor_hear(&ordinary);
	kills = counter("oom_kills");
	parent = actor_start(ANY, "has_a_greedy_child_in_its_group", NULL);
	actor_join_killed(&parent);
	ASSERT_EQ(counter("oom_kills"), kills + 2);
	ASSERT_EQ(read_field(CGROUP "/memory.events", "oom_group_kill"), 1);
	ASSERT(actor_alive(&elsewhere), "killed for another partition's memory");
	ASSERT(actor_alive(&ordinary), "killed for a partition's memory");
	actor_kill(&elsewhere);
	actor_kill(&ordinary);
	remove_cgroup();
}

#define RING_PAGES	16

/* Lives on a few pages that it frees lazily, in a partition without any other. */
ACTOR(lives_on_lazily_freed_pages)
{
	char *ring = map_anon(RING_PAGES * PAGE), *memory = map_anon(partition_bytes());
	u64 at, round;

	OK(madvise(ring, RING_PAGES * PAGE, MADV_NOHUGEPAGE));
	OK(madvise(memory, partition_bytes(), MADV_NOHUGEPAGE));
	fill(ring, RING_PAGES * PAGE, 1);
	at = fill_until(memory, 64 * PAGE);
	tell("full");
	/* The last of the free ones go here. */
	for (round = 0;; round++) {
		char *page = ring + round % RING_PAGES * PAGE;

		*page = 1;
		OK(madvise(page, PAGE, MADV_FREE));
		if (at < partition_bytes() && round % RING_PAGES == 0) {
			memory[at] = 1;
			at += PAGE;
		}
	}
}

TEST(a_search_that_finds_little_again_and_again_ends_with_a_kill)
{
	u64 start, drains;
	struct actor actor;

	require_partitions();
	actor = actor_start(ANY, "lives_on_lazily_freed_pages", NULL);
	actor_hear(&actor);
	start = now_ms();
	drains = counter("lru_drains");
	ASSERT(WAIT_FOR(!actor_alive(&actor), 20000), "it goes on for ever");
	actor_join_killed(&actor);
	note("%llu drains of all processors in %llu ms", counter("lru_drains") - drains,
	     now_ms() - start);
}

#define THREADS 8

/* More of them than fit: each that faults finds the partition full. */
ACTOR(overfills_again_and_again)
{
	int status, i;

	never_kill_me();
	fill(map_anon(percent(80)), percent(80), 1);
	tell("full");
	for (i = 0; i < THREADS; i++) {
		if (OK(fork()))
			continue;
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		for (;;) {
			if (!OK(fork())) {
				prctl(PR_SET_PDEATHSIG, SIGKILL);
				write_text("/proc/self/oom_score_adj", "0");
				fill(map_anon(percent(40)), percent(40), 1);
				_exit(0);
			}
			wait(&status);
		}
	}
	hear();
}

/* What processors have to do for a full partition, nobody is charged for. */
TEST(a_full_partition_seldom_disturbs_all_processors)
{
	u64 start, drains, kills;
	struct actor actor;
	int log, lines = 0;

	require_partitions();
	log = kmsg_mark();
	actor = actor_start(ANY, "overfills_again_and_again", NULL);
	actor_hear(&actor);
	start = now_ms();
	drains = counter("lru_drains");
	kills = counter("oom_kills");
	ASSERT(WAIT_FOR(counter("oom_kills") > kills + 20, 40000), "%llu kills",
	       counter("oom_kills") - kills);
	drains = counter("lru_drains") - drains;
	note("%llu kills, %llu drains in %llu ms", counter("oom_kills") - kills, drains,
	     now_ms() - start);
	/* Ten a second, for all partitions together, and one that was under way before. */
	ASSERT_LE(drains, (now_ms() - start) / 100 + 2);
	/* Nor do they fill the log: ten lines in five seconds. */
	while (kmsg_has(log, "artition", "ill"))
		lines++;
	note("%d lines", lines);
	ASSERT_LE(lines, (now_ms() - start) / 5000 * 10 + 20);
	actor_kill(&actor);
}

static char *crowded;

static int populate(void *unused)
{
	(void)unused;
	madvise(crowded, percent(30), MADV_POPULATE_WRITE);
	return 0;
}

/* Who dies of a full partition here shares its memory with one who does not. */
TEST_INSIDE(a_killed_task_leaves_no_ordinary_memory_behind)
{
	static char stack[64 * KIB] __attribute__((aligned(16)));
	char *memory;
	int i, status;
	pid_t pid;

	never_kill_me();
	memory = map_anon(percent(80));
	fill(memory, percent(80), 1);
	crowded = map_anon(percent(30));
	OK(madvise(crowded, percent(30), MADV_NOHUGEPAGE));
	for (i = 0; i < 8; i++) {
		pid = OK(clone(populate, stack + sizeof(stack), CLONE_VM | SIGCHLD, NULL));
		OK(waitpid(pid, &status, 0));
		ASSERT_KILLED(status, "the one that fills the partition");
	}
	/* Room for what this test itself needs. */
	OK(madvise(memory, 4 * MIB, MADV_DONTNEED));
	assert_confined(getpid(), percent(90) / PAGE);
}
