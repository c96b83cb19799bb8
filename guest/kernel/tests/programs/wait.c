// SPDX-License-Identifier: GPL-2.0
/* Waiting until a partition is free to be assigned: what ends it. */
#define _GNU_SOURCE
#include "actor.h"
#include "harness.h"
#include "host.h"
#include "instance.h"
#include "squeezy.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/time.h>

/* Takes all partitions that are free. */
static int hold_all(struct actor *actors)
{
	int count = partitions_in_state("free"), i;

	if (count < 2)
		skip("two partitions have to be free, and %d are", count);
	for (i = 0; i < count; i++)
		actors[i] = start_instance(ANY, 0);
	return count;
}

TEST(waiting_ends_with_etimedout)
{
	struct actor actors[255];
	u64 timeouts, start;

	require_partitions();
	hold_all(actors);
	timeouts = counter("wait_timeouts");
	start = now_ms();
	ASSERT_ERRNO(squeezy_assign(ANY, 100), ETIMEDOUT);
	/*
	 * It waits by jiffies. They fall behind while a busy host runs no processor of
	 * the guest, and then catch up: it has begun with an old one.
	 */
	ASSERT_GE(now_ms() - start, 50);
	ASSERT_LE(now_ms() - start, 10 * PROMPT_MS);
	ASSERT_ERRNO(squeezy_assign(actors[0].partition, 20), ETIMEDOUT);
	ASSERT_EQ(counter("wait_timeouts"), timeouts + 2);
	ASSERT_ERRNO(squeezy_cancel(), ENODATA);
}

static void ignore(int signal)
{
	(void)signal;
}

TEST(waiting_ends_with_eintr)
{
	struct sigaction action = { .sa_handler = ignore };
	/* Again and again: the first time it may not wait yet. */
	struct itimerval each_50_ms = { { .tv_usec = 50000 }, { .tv_usec = 50000 } };
	struct actor actors[255];

	require_partitions();
	hold_all(actors);
	OK(sigaction(SIGALRM, &action, NULL));
	OK(setitimer(ITIMER_REAL, &each_50_ms, NULL));
	ASSERT_ERRNO(squeezy_assign(ANY, -1), EINTR);
	/* The same with a handler that would restart other calls. */
	action.sa_flags = SA_RESTART;
	OK(sigaction(SIGALRM, &action, NULL));
	OK(setitimer(ITIMER_REAL, &each_50_ms, NULL));
	ASSERT_ERRNO(squeezy_assign(ANY, -1), EINTR);
}

ACTOR(waiter)
{
	int wait_ms = atoi(argv[0]);
	long got;

	tell("waiting");
	got = squeezy_assign(ANY, wait_ms);
	tell("%ld", got);
	hear();
}

TEST(a_release_wakes_who_waits)
{
	struct actor actors[255], waiters[2];
	u64 waits, start;
	int i, number;

	require_partitions();
	hold_all(actors);
	waits = counter("waits");
	waiters[0] = actor_start(NOBODY, "waiter", "-1", NULL);
	waiters[1] = actor_start(NOBODY, "waiter", "20000", NULL);
	for (i = 0; i < 2; i++)
		actor_hear(&waiters[i]);
	ASSERT(WAIT_FOR(counter("waits") == waits + 2, 2000), "%llu", counter("waits") - waits);
	for (i = 0; i < 2; i++) {
		/* Each release serves one, and it gets what was released. */
		start = now_ms();
		actor_kill(&actors[i]);
		ASSERT(WAIT_FOR(partition_users(actors[i].partition) == 1, 5000),
		       "nobody took partition %d", actors[i].partition);
		note("woken after %llu ms", now_ms() - start);
	}
	for (i = 0; i < 2; i++) {
		number = atoi(actor_hear(&waiters[i]));
		ASSERT(number == actors[0].partition || number == actors[1].partition, "%d",
		       number);
		actor_kill(&waiters[i]);
	}
}

TEST(a_plug_wakes_who_waits)
{
	struct actor waiter;
	u64 start;

	require_partitions();
	require_host();
	host_partitions(0, 10000);
	waiter = actor_start(NOBODY, "waiter", "20000", NULL);
	actor_hear(&waiter);
	sleep_ms(50);
	start = now_ms();
	host_request_size(size_of_partitions(1));
	ASSERT_EQ(atoi(actor_hear(&waiter)), 0);
	note("woken after %llu ms", now_ms() - start);
	actor_kill(&waiter);
	host_partitions(partitions(), 20000);
}

TEST(a_waiter_that_is_killed_leaves_nothing)
{
	struct actor actors[255], waiter;
	int partition;

	require_partitions();
	hold_all(actors);
	waiter = actor_start(NOBODY, "waiter", "-1", NULL);
	actor_hear(&waiter);
	sleep_ms(50);
	actor_kill(&waiter);
	partition = actors[0].partition;
	actor_kill(&actors[0]);
	ASSERT(WAIT_FOR(partition_is(partition, "free"), 5000), "%s", partition_state(partition));
}

