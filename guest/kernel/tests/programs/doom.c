// SPDX-License-Identifier: GPL-2.0
/*
 * A doomed instance, whose memory the host may discard: it can only die, without executing another
 * instruction, unless it is spared.
 */
#define _GNU_SOURCE
#include "actor.h"
#include "frozen.h"
#include "harness.h"
#include "instance.h"
#include "memfile.h"
#include "memory.h"
#include "squeezy.h"
#include "system.h"

#include <errno.h>
#include <linux/capability.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

TEST(what_is_not_condemned_lives_on)
{
	struct actor actor = start_frozen_instance();

	doom(actor.partition);
	doom(actor.partition);
	undoom(actor.partition);
	undoom(actor.partition);
	thaw();
	assert_intact(&actor);
	/* And can be doomed again. */
	freeze();
	doom(actor.partition);
	end_contained(&actor);
}

static void write_without_capabilities(void *partition)
{
	struct __user_cap_header_struct header = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct none[2] = { 0 };

	OK(syscall(SYS_capset, &header, none));
	ASSERT(!write_doom(*(int *)partition, "1"), "written");
	ASSERT(errno == EPERM, "%m");
}

TEST(what_cannot_be_doomed_is_an_error)
{
	struct actor actor = start_frozen_instance();

	ASSERT(!write_doom(actor.partition, "2") && errno == EINVAL, "%m");
	in_child_ok(write_without_capabilities, &actor.partition);
	ASSERT(!is_doomed(actor.partition), "doomed");
	end_contained(&actor);
	ASSERT(!write_doom(actor.partition, "1") && errno == ENODATA, "%m");
	ASSERT(!write_doom(actor.partition, "0") && errno == ENODATA, "%m");
}

#define COUNTERS 8

static volatile u64 *counters;

static void *count(void *counter)
{
	volatile u64 *own = counter;

	for (;;)
		++*own;
	return NULL;
}

static void count_signal(int signal __attribute__((unused)))
{
	++counters[6];
}

/*
 * Threads, a child, and a vfork(2), whose parent is frozen in the middle of a system call. Each
 * counts in memory that is not the instance's, and would go on the moment it is thawed.
 */
ACTOR(counts)
{
	pthread_t thread;
	int i;

	hear();
	counters = (u64 *)map_file(atoi(argv[0]), PAGE);
	for (i = 0; i < 3; i++)
		ASSERT(!pthread_create(&thread, NULL, count, (void *)&counters[i]), "no thread");
	if (!fork_child()) {
		if (!vfork())
			count((void *)&counters[3]);
		count((void *)&counters[4]);
	}
	signal(SIGUSR1, count_signal);
	tell("counting");
	count((void *)&counters[5]);
}

static void by_thawing(struct actor *actor __attribute__((unused)))
{
	thaw();
}

static void by_leaving(struct actor *actor __attribute__((unused)))
{
	char pids[512], *pid, *rest = pids;

	/* The others die with this one; each is enough. */
	ASSERT(read_text(CGROUP "/cgroup.procs", pids, sizeof(pids)), "%m");
	while ((pid = strsep(&rest, "\n")))
		write_text("/sys/fs/cgroup/cgroup.procs", pid);
}

static void by_a_kill(struct actor *actor __attribute__((unused)))
{
	ASSERT(write_text(CGROUP "/cgroup.kill", "1"), "%m");
}

static void by_a_signal_and_a_thaw(struct actor *actor)
{
	kill(actor->pid, SIGCONT);
	kill(actor->pid, SIGUSR1);
	sleep_ms(50);
	ASSERT(actor_alive(actor), "it was thawed");
	thaw();
}

static void assert_nothing_runs(void (*wake)(struct actor *))
{
	static u64 before[COUNTERS];
	int file, i, partition;
	struct actor actor;
	char number[16];

	require_partitions();
	file = OK(memfd_create("counters", 0));
	counters = (u64 *)map_file(file, PAGE);
	memset((void *)counters, 0, PAGE);
	snprintf(number, sizeof(number), "%d", file);
	actor = actor_start(ANY, "counts", number, NULL);
	partition = actor.partition;
	contain(actor.pid);
	actor_tell(&actor, "go on");
	actor_hear(&actor);
	for (i = 0; i < 4; i++)
		ASSERT(WAIT_FOR(counters[i], 10 * PROMPT_MS), "%d does not count", i);
	ASSERT(WAIT_FOR(counters[5], 10 * PROMPT_MS), "the first thread does not count");
	freeze();
	memcpy(before, (void *)counters, sizeof(before));
	doom(partition);
	wake(&actor);
	actor_join_killed(&actor);
	ASSERT(WAIT_FOR(partition_is(partition, "free"), PROMPT_MS), "%s",
	       partition_state(partition));
	for (i = 0; i < COUNTERS; i++)
		ASSERT_EQ(counters[i], before[i]);
	ASSERT(!is_doomed(partition), "still doomed");
	remove_cgroup();
	close(file);
}

TEST(a_thaw_is_a_kill_without_an_instruction)
{
	assert_nothing_runs(by_thawing);
}

TEST(leaving_a_frozen_cgroup_is_a_kill)
{
	assert_nothing_runs(by_leaving);
}

TEST(a_kill_is_a_kill)
{
	assert_nothing_runs(by_a_kill);
}

TEST(signals_wait_for_the_kill)
{
	assert_nothing_runs(by_a_signal_and_a_thaw);
}

/* Whether the counts of an instance that was undoomed go on. */
TEST(what_is_undoomed_goes_on)
{
	int file = OK(memfd_create("counters", 0));
	struct actor actor;
	char number[16];
	u64 before;

	require_partitions();
	counters = (u64 *)map_file(file, PAGE);
	memset((void *)counters, 0, PAGE);
	snprintf(number, sizeof(number), "%d", file);
	actor = actor_start(ANY, "counts", number, NULL);
	contain(actor.pid);
	actor_tell(&actor, "go on");
	actor_hear(&actor);
	ASSERT(WAIT_FOR(counters[3], 10 * PROMPT_MS), "the child of vfork does not count");
	freeze();
	doom(actor.partition);
	undoom(actor.partition);
	before = counters[3];
	thaw();
	ASSERT(WAIT_FOR(counters[3] != before, PROMPT_MS), "it does not go on");
	ASSERT(actor_alive(&actor), "it was killed");
	end_contained(&actor);
}

/* Freezes and thaws for as long as it lives. */
static void freeze_and_thaw(void)
{
	for (;;) {
		write_text(CGROUP "/cgroup.freeze", "1");
		sleep_ms(1);
		write_text(CGROUP "/cgroup.freeze", "0");
	}
}

/* False if it has been killed, or is about to be; fails if it lives and its memory has changed. */
static bool lives_whole(struct actor *actor)
{
	char answer[16] = "";

	if (send(actor->fd, "check", sizeof("check"), MSG_NOSIGNAL) < 0 ||
	    recv(actor->fd, answer, sizeof(answer) - 1, 0) <= 0)
		return false;
	ASSERT(!strcmp(answer, "intact"), "memory has changed");
	return true;
}

/* Whether it is thawed before, after or while it is doomed, it lives on whole or dies. */
TEST(dooming_while_it_is_thawed, .seconds = 120)
{
	unsigned int round, tries, doomed = 0, killed = 0;
	struct actor actor;
	pid_t other;

	require_partitions();
	for (round = 0; round < 10; round++) {
		actor = start_instance(ANY, 4 * MIB);
		contain(actor.pid);
		other = fork_child();
		if (!other)
			freeze_and_thaw();
		for (tries = 0; tries < 50 && actor_alive(&actor); tries++) {
			doomed += write_doom(actor.partition, "1");
			write_doom(actor.partition, "0");
		}
		kill(other, SIGKILL);
		OK(waitpid(other, NULL, 0));
		thaw();
		killed += !lives_whole(&actor);
		end_contained(&actor);
	}
	note("doomed %u times, killed %u of %u", doomed, killed, round);
}
