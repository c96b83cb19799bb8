// SPDX-License-Identifier: GPL-2.0
/* Joining: a process enters the partition of another one, and it is one instance from then on. */
#define _GNU_SOURCE
#include "actor.h"
#include "frozen.h"
#include "harness.h"
#include "instance.h"
#include "memory.h"
#include "pages.h"
#include "squeezy.h"
#include "system.h"

#include <errno.h>
#include <linux/capability.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

ACTOR(fills_a_tenth)
{
	char *memory = map_anon(percent(10));

	fill(memory, percent(10), 1);
	assert_range_in(memory, percent(10), own_partition());
	tell("filled");
	hear();
	ASSERT(filled(memory, percent(10), 1), "memory has changed");
}

TEST(shares_the_partition_until_the_last_one_ends)
{
	struct actor first, second;

	require_partitions();
	first = start_instance(ANY, percent(10));
	second = actor_start_beside(first.pid, "fills_a_tenth", NULL);
	ASSERT_EQ(second.partition, first.partition);
	ASSERT_EQ(squeezy_get(second.pid), first.partition);
	ASSERT_EQ(partition_users(first.partition), 2);
	actor_hear(&second);
	assert_intact(&first);

	/* Whoever began it may go first. */
	actor_kill(&first);
	ASSERT(WAIT_FOR(partition_users(second.partition) == 1, 5000), "%d",
	       partition_users(second.partition));
	ASSERT(partition_is(second.partition, "assigned"), "%s",
	       partition_state(second.partition));
	actor_tell(&second, "check");
	actor_join(&second);
	ASSERT(WAIT_FOR(partition_is(first.partition, "free"), 5000), "%s",
	       partition_state(first.partition));
	ASSERT_EQ(partition_free(first.partition), partition_managed(first.partition));
}

TEST(the_partition_waits_for_the_execve)
{
	struct actor actor;
	int number;

	require_partitions();
	actor = start_instance(ANY, MIB);
	number = actor.partition;
	ASSERT_EQ(OK(squeezy_join(actor.pid)), number);
	ASSERT_EQ(partition_users(number), 2);
	/* Pending is not running in it. */
	ASSERT_ERRNO(squeezy_get(0), ENODATA);
	actor_kill(&actor);
	ASSERT(WAIT_FOR(partition_users(number) == 1, 5000), "%d", partition_users(number));
	ASSERT(partition_is(number, "assigned"), "%s", partition_state(number));
	OK(squeezy_cancel());
	ASSERT(WAIT_FOR(partition_is(number, "free"), 5000), "%s", partition_state(number));
	ASSERT_ERRNO(squeezy_cancel(), ENODATA);
}

ACTOR(inside_joins)
{
	pid_t other = atoi(hear());

	ASSERT_ERRNO(squeezy_join(other), EBUSY);
	ASSERT_ERRNO(squeezy_join(getpid()), EBUSY);
	ASSERT_ERRNO(squeezy_join(0), EBUSY);
}

ACTOR(stays)
{
	fill(map_anon(MIB), MIB, 1);
	tell("in");
	hear();
}

TEST(the_execve_may_come_after_the_last_process_has_ended)
{
	struct actor actor;
	int status, number;
	pid_t pid;

	require_partitions();
	actor = start_instance(ANY, MIB);
	number = actor.partition;
	pid = fork_child();
	if (!pid) {
		OK(squeezy_join(actor.pid));
		raise(SIGSTOP);
		exec_body("is_alone", NULL);
	}
	OK(waitpid(pid, &status, WUNTRACED));
	actor_kill(&actor);
	ASSERT(WAIT_FOR(partition_users(number) == 1, 5000), "%d", partition_users(number));
	kill(pid, SIGCONT);
	OK(waitpid(pid, &status, 0));
	ASSERT_EQ(status, 0);
	ASSERT(WAIT_FOR(partition_is(number, "free"), 5000), "%s", partition_state(number));
}

BODY(is_alone)
{
	char *memory = map_anon(percent(80));

	ASSERT_EQ(partition_users(own_partition()), 1);
	fill(memory, percent(80), 1);
	ASSERT(filled(memory, percent(80), 1), "memory has changed");
}

ACTOR(fills_its_partition)
{
	/* Not beyond: that would kill. */
	fill_until(map_anon(partition_bytes()), 2 * PAGE);
	tell("full");
	hear();
}

TEST(whoever_joins_a_full_partition_has_room_made)
{
	struct actor full, second;

	require_partitions();
	full = actor_start(ANY, "fills_its_partition", NULL);
	actor_hear(&full);
	second = actor_start_beside(full.pid, "stays", NULL);
	actor_hear(&second);
	actor_join_killed(&full);
	actor_kill(&second);
}

TEST(a_second_partition_is_ebusy)
{
	struct actor inside, other;

	require_partitions();
	other = start_instance(ANY, 0);
	inside = actor_start(ANY, "inside_joins", NULL);
	actor_tell(&inside, "%d", other.pid);
	actor_join(&inside);

	OK(squeezy_assign(ANY, 0));
	ASSERT_ERRNO(squeezy_join(other.pid), EBUSY);
	OK(squeezy_cancel());
	OK(squeezy_join(other.pid));
	ASSERT_ERRNO(squeezy_join(other.pid), EBUSY);
	ASSERT_ERRNO(squeezy_assign(ANY, 0), EBUSY);
	OK(squeezy_cancel());
	actor_kill(&other);
}

TEST(who_is_in_no_partition_cannot_be_joined)
{
	struct actor actor;
	siginfo_t info;

	require_partitions();
	ASSERT_ERRNO(prctl(PR_SQUEEZY, (long)PR_SQUEEZY_JOIN, 1L, 1L, 0L), EINVAL);
	ASSERT_ERRNO(prctl(PR_SQUEEZY, (long)PR_SQUEEZY_JOIN, 1L, 0L, 1L), EINVAL);
	ASSERT_ERRNO(squeezy_join(getpid()), ENODATA);
	ASSERT_ERRNO(squeezy_join(1), ENODATA);
	/* kthreadd */
	ASSERT_ERRNO(squeezy_join(2), ESRCH);
	ASSERT_ERRNO(squeezy_join(0), ESRCH);
	ASSERT_ERRNO(squeezy_join(-1), ESRCH);
	/* A number that only fits into 64 bits must not be cut to one that is right. */
	ASSERT_ERRNO(prctl(PR_SQUEEZY, (long)PR_SQUEEZY_JOIN, 1L << 32 | 1, 0L, 0L), ESRCH);

	actor = start_instance(ANY, 0);
	kill(actor.pid, SIGKILL);
	OK(waitid(P_PID, actor.pid, &info, WEXITED | WNOWAIT));
	ASSERT_ERRNO(squeezy_join(actor.pid), ESRCH);
	actor_wait(&actor);
	ASSERT_ERRNO(squeezy_join(actor.pid), ESRCH);
}

static void join_without_capability(void *pid)
{
	struct __user_cap_header_struct header = { _LINUX_CAPABILITY_VERSION_3, 0 };
	struct __user_cap_data_struct data[2];

	OK(syscall(SYS_capget, &header, data));
	data[0].effective &= ~(1u << CAP_SYS_RESOURCE);
	OK(syscall(SYS_capset, &header, data));
	ASSERT_ERRNO(squeezy_join(*(pid_t *)pid), EPERM);
	ASSERT_ERRNO(squeezy_join(1), EPERM);
}

static void join_in_user_namespace(void *pid)
{
	if (unshare(CLONE_NEWUSER))
		skip("no user namespaces: %m");
	ASSERT_ERRNO(squeezy_join(*(pid_t *)pid), EPERM);
}

TEST(needs_the_capability_in_the_initial_user_namespace)
{
	struct actor actor;

	require_partitions();
	actor = start_instance(ANY, 0);
	in_child_ok(join_without_capability, &actor.pid);
	in_child_ok(join_in_user_namespace, &actor.pid);
	ASSERT_EQ(partition_users(actor.partition), 1);
	actor_kill(&actor);
}

TEST(a_doomed_instance_cannot_be_joined_nor_a_joined_one_doomed)
{
	struct actor actor;

	require_partitions();
	actor = start_frozen_instance();
	doom(actor.partition);
	ASSERT_ERRNO(squeezy_join(actor.pid), EBUSY);
	ASSERT_EQ(partition_users(actor.partition), 1);
	undoom(actor.partition);

	/* Whoever is about to enter would not be frozen. */
	OK(squeezy_join(actor.pid));
	assert_not_doomed(actor.partition, "somebody else holds it");
	OK(squeezy_cancel());
	doom(actor.partition);
	end_contained(&actor);
}

TEST(who_has_joined_has_to_be_frozen_too)
{
	struct actor actor, second;
	char text[16];

	require_partitions();
	actor = start_frozen_instance();
	second = actor_start_beside(actor.pid, "stays", NULL);
	actor_hear(&second);
	assert_not_doomed(actor.partition, "is not frozen");
	snprintf(text, sizeof(text), "%d", second.pid);
	ASSERT(write_text(CGROUP "/cgroup.procs", text), "%m");
	freeze();
	doom(actor.partition);
	kill(second.pid, SIGKILL);
	actor_wait(&second);
	end_contained(&actor);
}

/* Counts each time while the assignment is pending. */
static void join_and_cancel(pid_t pid, volatile unsigned int *joined)
{
	for (;;) {
		if (squeezy_join(pid) < 0) {
			ASSERT_EQ(errno, EBUSY);
			continue;
		}
		++*joined;
		OK(squeezy_cancel());
		/* Whoever dooms is to have a chance. */
		usleep(*joined % 8 * 100);
	}
}

TEST(joining_while_it_is_doomed)
{
	unsigned int before, doomed = 0, i;
	volatile unsigned int *joined;
	struct actor actor;
	pid_t joiner;

	require_partitions();
	joined = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	ASSERT(joined != MAP_FAILED, "mmap: %m");
	actor = start_frozen_instance();
	joiner = fork_child();
	if (!joiner)
		join_and_cancel(actor.pid, joined);
	for (i = 0; i < 200; i++) {
		if (!write_doom(actor.partition, "1")) {
			ASSERT_EQ(errno, EBUSY);
			/* Whoever has joined may be kept from going on. */
			sleep_ms(1);
			continue;
		}
		doomed++;
		before = *joined;
		sleep_ms(1);
		ASSERT_EQ(*joined, before);
		undoom(actor.partition);
		sleep_ms(i % 3);
	}
	note("doomed %u times of %u, joined %u times", doomed, i, *joined);
	ASSERT_GE(doomed, 1);
	ASSERT_GE(*joined, 1);
	kill(joiner, SIGKILL);
	OK(waitpid(joiner, NULL, 0));
	end_contained(&actor);
}

ACTOR(uses_a_little)
{
	fill(map_anon(MIB), MIB, 1);
	hear();
}

/* Joins a process again and again, until that has ended. */
ACTOR(joins_again_and_again)
{
	pid_t victim = atoi(argv[0]);
	int joined = 0;

	tell("begins");
	while (squeezy_join(victim) >= 0) {
		joined++;
		OK(squeezy_cancel());
	}
	ASSERT(errno == ESRCH, "join: %m");
	tell("%d", joined);
}

TEST(races_with_the_end_of_the_last_process)
{
	struct actor victim, joiner;
	char pid[16];
	int i, number, joined = 0;

	require_partitions();
	for (i = 0; i < 40; i++) {
		victim = actor_start(ANY, "uses_a_little", NULL);
		number = victim.partition;
		snprintf(pid, sizeof(pid), "%d", victim.pid);
		joiner = actor_start(NOBODY, "joins_again_and_again", pid, NULL);
		actor_hear(&joiner);
		sleep_ms(i % 4);
		actor_kill(&victim);
		joined += atoi(actor_hear(&joiner));
		actor_join(&joiner);
		ASSERT(WAIT_FOR(partition_is(number, "free"), 5000), "%s", partition_state(number));
		ASSERT_EQ(partition_free(number), partition_managed(number));
	}
	note("joined %d times", joined);
	ASSERT_GE(joined, 1);
}
