// SPDX-License-Identifier: GPL-2.0
/*
 * Ordinary memory is short beside partitions: who has it is killed, one at a time, and what a
 * partition holds or has lazily freed is nothing that others could have.
 */
#define _GNU_SOURCE
#include "actor.h"
#include "calls.h"
#include "harness.h"
#include "instance.h"
#include "memory.h"
#include "squeezy.h"
#include "system.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

static void set_oom_score_adj(pid_t pid, const char *adj)
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d/oom_score_adj", pid);
	ASSERT(write_text(path, adj), "%s: %m", path);
}

/* Fills a pipe: memory of the kernel that no process maps. */
static bool fill_pipe(int ends[2])
{
	static char block[MIB];
	u64 done = 0;
	ssize_t put;

	if (pipe2(ends, O_NONBLOCK) || fcntl(ends[1], F_SETPIPE_SZ, MIB) < 0)
		return false;
	do {
		put = write(ends[1], block, MIB - done);
		done += put > 0 ? put : 0;
	} while (put > 0 && done < MIB);
	return true;
}

/* All that one process has to free takes a while: a victim that is slow to die. */
ACTOR(fills_pipes)
{
	struct rlimit files = { 8192, 8192 };
	char *memory = map_anon(percent(60));
	int ends[2];

	if (argc > 0)
		enter_cgroup();
	set_oom_score_adj(getpid(), "0");
	OK(setrlimit(RLIMIT_NOFILE, &files));
	fill(memory, percent(60), 4);
	tell("ready");
	hear();
	while (fill_pipe(ends))
		;
	FAIL("still there: %m");
}

/* Always in need of a little, and whoever fails to get that calls the OOM killer. */
ACTOR(fills_a_pipe_and_empties_it)
{
	int ends[2];

	tell("ready");
	for (;;) {
		if (!fill_pipe(ends))
			continue;
		close(ends[0]);
		close(ends[1]);
	}
}

static struct actor start_and_ready(int partition, const char *name, const char *arg)
{
	struct actor actor = actor_start(partition, name, arg, NULL);

	actor_hear(&actor);
	return actor;
}

TEST(a_global_oom_kills_the_culprit_and_nobody_else, .seconds = 120)
{
	struct actor bystanders[2], needy[2], hog;
	u64 before;
	int i, log;

	require_partitions();
	make_cgroup(NO_LIMIT);
	for (i = 0; i < 2; i++)
		bystanders[i] = start_instance(ANY, percent(60));
	for (i = 0; i < 2; i++)
		needy[i] = start_and_ready(NOBODY, "fills_a_pipe_and_empties_it", NULL);
	hog = start_and_ready(ANY, "fills_pipes", "in its cgroup");
	before = oom_kills();
	log = kmsg_mark();
	actor_tell(&hog, "go");
	actor_join_killed(&hog);
	/* Those who needed memory while it died have waited for it. */
	sleep_ms(500);
	ASSERT_EQ(oom_kills(), before + 1);
	for (i = 0; i < 2; i++)
		assert_intact(&bystanders[i]);
	for (i = 0; i < 2; i++) {
		ASSERT(actor_alive(&needy[i]), "one who needs little was killed");
		actor_kill(&needy[i]);
	}
	/* Of the zones, those are shown that could have helped. */
	ASSERT(!kmsg_has(log, "Partition free:", ""), "the zones of partitions are in the log");
	remove_cgroup();
}

/*
 * Has a hog killed, and gives it no processor for four seconds from then on: false if it was dead
 * before, or nobody lacked memory any more.
 */
static bool starve_a_victim(struct actor *needy, int cpu_max)
{
	const int calls = count_calls(needy->pid, "out_of_memory");
	struct actor hog = start_and_ready(ANY, "fills_pipes", "in its cgroup");
	const u64 before = oom_kills();
	bool is_starved;
	u64 so_far;

	actor_tell(&hog, "go");
	ASSERT(WAIT_FOR(oom_kills() > before, 60000), "nobody is killed");
	OK(write(cpu_max, "1000 1000000", 12));
	sleep_ms(3000);
	so_far = counted_calls(calls);
	sleep_ms(1000);
	is_starved = actor_alive(&hog) && counted_calls(calls) > so_far;
	OK(write(cpu_max, "max", 3));
	actor_join_killed(&hog);
	close(calls);
	return is_starved;
}

TEST(a_victim_that_is_starved_of_processors_is_waited_for, .seconds = 300)
{
	const u64 before = oom_kills();
	unsigned int tries = 1;
	struct actor needy;
	int cpu_max;

	require_partitions();
	ASSERT(write_text("/sys/fs/cgroup/cgroup.subtree_control", "+cpu"), "+cpu: %m");
	make_cgroup(NO_LIMIT);
	cpu_max = OK(open(CGROUP "/cpu.max", O_WRONLY | O_CLOEXEC));
	needy = start_and_ready(NOBODY, "fills_a_pipe_and_empties_it", NULL);
	while (!starve_a_victim(&needy, cpu_max))
		ASSERT(++tries <= 10, "it is never starved");
	ASSERT_EQ(oom_kills(), before + tries);
	note("at try %u", tries);
	actor_kill(&needy);
	close(cpu_max);
	remove_cgroup();
}

TEST(a_global_oom_does_not_panic_while_the_last_one_is_dying, .seconds = 120)
{
	struct actor needy[2], hog;
	int i;

	require_partitions();
	/* Nobody may be killed but the hog. */
	set_oom_score_adj(getpid(), "-1000");
	set_oom_score_adj(getppid(), "-1000");
	for (i = 0; i < 2; i++)
		needy[i] = start_and_ready(NOBODY, "fills_a_pipe_and_empties_it", NULL);
	hog = start_and_ready(ANY, "fills_pipes", NULL);
	actor_tell(&hog, "go");
	actor_join_killed(&hog);
	for (i = 0; i < 2; i++) {
		ASSERT(actor_alive(&needy[i]), "one that must not be was killed");
		actor_kill(&needy[i]);
	}
	set_oom_score_adj(getppid(), "0");
}

/* Its children are killed in its partition, one after the other. */
ACTOR(is_killed_all_the_time)
{
	char *memory;
	int status;

	set_oom_score_adj(getpid(), "-1000");
	memory = map_anon(percent(80));
	fill(memory, percent(80), 1);
	tell("ready");
	for (;;) {
		if (!OK(fork())) {
			set_oom_score_adj(getpid(), "0");
			fill(map_anon(percent(40)), percent(40), 1);
			_exit(0);
		}
		OK(wait(&status));
	}
}

TEST(an_instance_that_kills_inside_does_not_hold_off_a_global_oom, .seconds = 120)
{
	struct actor bystander, restless, hog;
	u64 inside;

	require_partitions();
	make_cgroup(NO_LIMIT);
	bystander = start_instance(ANY, percent(60));
	restless = start_and_ready(ANY, "is_killed_all_the_time", NULL);
	hog = start_and_ready(ANY, "fills_pipes", "in its cgroup");
	inside = counter("oom_kills");
	ASSERT(WAIT_FOR(counter("oom_kills") > inside, 20000), "nobody is killed inside");
	actor_tell(&hog, "go");
	ASSERT(WAIT_FOR(!actor_alive(&hog), 30000), "the hog lives");
	actor_join_killed(&hog);
	assert_intact(&bystander);
	ASSERT(actor_alive(&restless), "killed for memory that it has not");
	actor_kill(&restless);
	remove_cgroup();
}

/* Has freed most of its memory lazily: nobody but its partition can have that. */
ACTOR(frees_lazily)
{
	u64 bytes = percent(60);
	char *memory = map_anon(bytes);

	OK(madvise(memory, bytes, MADV_NOHUGEPAGE));
	fill(memory, bytes, 1);
	tell("filled");
	hear();
	OK(madvise(memory, bytes, MADV_FREE));
	tell("freed");
	hear();
}

static u64 meminfo(const char *field)
{
	return read_field("/proc/meminfo", field) * KIB;
}

TEST(lazily_freed_memory_of_a_partition_is_not_for_others, .seconds = 120)
{
	u64 cache, available, lazily, before;
	struct actor actor, hog;

	require_partitions();
	make_cgroup(NO_LIMIT);
	actor = start_and_ready(ANY, "frees_lazily", NULL);
	cache = meminfo("Inactive(file):");
	available = meminfo("MemAvailable:");
	actor_tell(&actor, "free");
	actor_hear(&actor);
	/* Whatever is in folio batches goes to its list now. */
	ASSERT(write_text("/proc/sys/vm/compact_memory", "1"), "compact_memory: %m");
	/* The kernel counts it neither as cache nor as available. */
	ASSERT_LE(meminfo("Inactive(file):"), cache + 8 * MIB);
	ASSERT_LE(meminfo("MemAvailable:"), available + 8 * MIB);
	/* A shortage ends with a kill, and not with reclaim of what does not help. */
	lazily = read_field("/proc/vmstat", "pglazyfreed");
	before = oom_kills();
	hog = start_and_ready(ANY, "fills_pipes", "in its cgroup");
	actor_tell(&hog, "go");
	actor_join_killed(&hog);
	ASSERT_EQ(oom_kills(), before + 1);
	ASSERT_EQ(read_field("/proc/vmstat", "pglazyfreed"), lazily);
	actor_kill(&actor);
	remove_cgroup();
}
