// SPDX-License-Identifier: GPL-2.0
/* Reports of free blocks beside allocations, exits and resizes. See report.c. */
#define _GNU_SOURCE
#include "actor.h"
#include "harness.h"
#include "host.h"
#include "memory.h"
#include "reporting.h"
#include "squeezy.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

/* Fills nearly all of its partition again and again, while it is being reported. */
ACTOR(breathes)
{
	u64 end = now_ms() + strtoull(argv[0], NULL, 10) * slowness(), bytes = percent(90);
	u64 rounds = 0;

	while (now_ms() < end) {
		char *memory = rounds % 2 ? map_huge(bytes) : map_anon(bytes);

		fill(memory, bytes, rounds);
		ASSERT(filled(memory, bytes, rounds), "memory changed");
		OK(munmap(memory, bytes));
		rounds++;
	}
	note("%llu rounds", rounds);
}

/* Reports partitions at random until it is killed; nothing but the listed errors may come. */
ACTOR(reporter)
{
	unsigned int seed = atoi(argv[0]);
	u64 done = 0;

	for (;;) {
		char order[8];

		snprintf(order, sizeof(order), "%d", rand_r(&seed) % 11);
		if (!report(rand_r(&seed) % partitions(), order))
			done++;
		else
			ASSERT(errno == ENODATA || errno == EBUSY, "report: %m");
		if (done == 1)
			tell("first");
	}
}

TEST(an_allocation_waits_for_the_blocks_that_are_being_reported, .seconds = 120)
{
	struct actor reporters[2], actor;
	u64 kills;
	int i;

	require_reporting();
	kills = counter("oom_kills");
	actor = actor_start(ANY, "breathes", "6000", NULL);
	for (i = 0; i < 2; i++) {
		reporters[i] = actor_start(NOBODY, "reporter", i ? "1" : "2", NULL);
		actor_hear(&reporters[i]);
	}
	actor_join(&actor);
	for (i = 0; i < 2; i++)
		actor_kill(&reporters[i]);
	ASSERT_EQ(counter("oom_kills"), kills);
	note("%llu reports, %llu MiB", counter("reports"), counter("reported_bytes") / MIB);
}

/* Starts, fills and leaves partitions, while they are being reported and resized. */
ACTOR(comes_and_goes)
{
	u64 end = now_ms() + strtoull(argv[0], NULL, 10) * slowness();
	int status, rounds = 0;
	pid_t pid;

	for (; now_ms() < end; rounds++) {
		pid = OK(fork());
		if (!pid) {
			char *arguments[] = { "300", NULL };

			if (squeezy_assign(ANY, 500) < 0)
				_exit(0);
			exec_body("stays_a_moment", arguments);
		}
		if (rounds % 3 == 0) {
			sleep_ms(rounds % 50);
			kill(pid, SIGKILL);
		}
		OK(waitpid(pid, &status, 0));
		ASSERT(WIFSIGNALED(status) ? WTERMSIG(status) == SIGKILL : !WEXITSTATUS(status),
		       "%#x", status);
	}
	note("%d processes", rounds);
}

BODY(stays_a_moment)
{
	u64 bytes = percent(50);
	char *memory = map_anon(bytes);

	if (!all_zero(memory, bytes / 8))
		_exit(1);
	fill(memory, bytes, getpid());
	if (madvise(memory + bytes / 2, bytes / 2, MADV_DONTNEED))
		_exit(1);
	sleep_ms(20);
	fill(memory + bytes / 2, bytes / 4, 1);
	_exit(!filled(memory, bytes / 2, getpid()) || !filled(memory + bytes / 2, bytes / 4, 1));
}

TEST(reports_race_with_exits_and_resizes, .seconds = 180)
{
	struct actor reporters[2], workers[3];
	unsigned int seed = 1;
	u64 end, kills;
	int i, n;

	require_reporting();
	n = partitions();
	kills = counter("oom_kills");
	host_partitions(n, 20000);
	for (i = 0; i < 3; i++)
		workers[i] = actor_start(NOBODY, "comes_and_goes", "8000", NULL);
	for (i = 0; i < 2; i++)
		reporters[i] = actor_start(NOBODY, "reporter", i ? "3" : "4", NULL);
	end = now_ms() + 7000 * slowness();
	while (now_ms() < end) {
		host_request_size(size_of_partitions(rand_r(&seed) % (n + 1)));
		sleep_ms(rand_r(&seed) % 60);
	}
	for (i = 0; i < 3; i++)
		actor_join(&workers[i]);
	for (i = 0; i < 2; i++)
		actor_kill(&reporters[i]);
	ASSERT(settle(), "in use");
	ASSERT_EQ(counter("oom_kills"), kills);
	host_partitions(0, 30000);
	ASSERT(!shrink_blocked()[0], "%s", shrink_blocked());
	host_partitions(n, 30000);
	for (i = 0; i < n; i++)
		ASSERT_EQ(partition_free(i), partition_managed(i));
	note("%llu reports, %llu requests, %llu MiB", counter("reports"),
	     counter("report_requests"), counter("reported_bytes") / MIB);
}
