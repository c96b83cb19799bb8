// SPDX-License-Identifier: GPL-2.0
/*
 * Everything at once: assigning, forking, executing, exiting, filling up, stragglers, while the
 * host grows and shrinks at random. SELFTEST_SECONDS is how long each test goes on (default 5).
 * At the end every page of every partition must be free.
 */
#define _GNU_SOURCE
#include "actor.h"
#include "harness.h"
#include "host.h"
#include "memory.h"
#include "squeezy.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#define WORKERS		6
#define LIMIT_SECONDS	1800

static unsigned int seconds(void)
{
	const char *text = getenv("SELFTEST_SECONDS");

	return text ? atoi(text) : 5;
}

/* Runs in a partition, forks a small tree, writes, exits. */
BODY(burst)
{
	unsigned int seed = atoi(argv[0]), pattern = seed;
	u64 bytes = (1 + rand_r(&seed) % 8) * MIB;
	char *memory = rand_r(&seed) % 2 ? map_anon(bytes) : map_huge(bytes);
	int i;

	fill(memory, bytes, pattern);
	for (i = 0; i < 2; i++) {
		if (!fork()) {
			fill(memory, bytes, pattern + 1);
			_exit(0);
		}
	}
	while (wait(NULL) > 0)
		;
	if (!filled(memory, bytes, pattern))
		_exit(1);
	/* Half of them execute something else before they go. */
	if (argc > 1 && rand_r(&seed) % 2) {
		char text[16], *arguments[] = { text, NULL };

		snprintf(text, sizeof(text), "%d", rand_r(&seed));
		exec_body("burst", arguments);
	}
}

/* Fills its partition until it is killed. */
BODY(glutton)
{
	fill(map_anon(partition_bytes() * 2), partition_bytes() * 2, 1);
}

/* Leaves pages in the pipe at ACTOR_FD, which its parent drops when it likes. */
BODY(straggle)
{
	char *memory = map_anon(16 * PAGE);
	struct iovec iov = { memory, 16 * PAGE };

	fill(memory, 16 * PAGE, 1);
	if (vmsplice(ACTOR_FD, &iov, 1, SPLICE_F_NONBLOCK) < 0)
		_exit(1);
}

/* Assigns without executing: pending until it exits, cancels, or is killed. */
static void dither(unsigned int *seed)
{
	if (squeezy_assign(ANY, rand_r(seed) % 20) >= 0 && rand_r(seed) % 2)
		squeezy_cancel();
	_exit(0);
}

static void one_child(const char *kind, unsigned int *seed)
{
	char text[16], *arguments[] = { text, "again", NULL };

	snprintf(text, sizeof(text), "%d", rand_r(seed));
	if (squeezy_assign(ANY, rand_r(seed) % 200) < 0) {
		ASSERT(errno == EAGAIN || errno == ETIMEDOUT, "assign: %m");
		_exit(0);
	}
	exec_body(kind, arguments);
}

/* Starts one process after the other until the time is over. */
ACTOR(worker)
{
	unsigned int seed = atoi(argv[1]);
	u64 end = now_ms() + seconds() * 1000, started = 0, bad = 0;
	const char *kind = argv[0];
	int status, ends[2] = { -1, -1 };

	while (now_ms() < end) {
		pid_t pid;

		if (!strcmp(kind, "straggle")) {
			close(ends[0]);
			OK(pipe2(ends, O_CLOEXEC));
		}
		pid = OK(fork());
		if (!pid) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			if (ends[1] >= 0)
				OK(dup2(ends[1], ACTOR_FD));
			if (rand_r(&seed) % 8 == 0)
				dither(&seed);
			one_child(kind, &seed);
		}
		rand_r(&seed);
		close(ends[1]);
		if (rand_r(&seed) % 4 == 0) {
			sleep_ms(rand_r(&seed) % 30);
			kill(pid, SIGKILL);
		}
		OK(waitpid(pid, &status, 0));
		started++;
		bad += !WIFSIGNALED(status) && WEXITSTATUS(status);
	}
	ASSERT(!bad, "%llu of %llu processes found their memory changed", bad, started);
	note("%s: %llu processes", kind, started);
}

static void stress(const char * const *kinds, int count)
{
	struct actor workers[WORKERS];
	unsigned int seed = 1;
	u64 end, resizes = 0;
	char text[16];
	int i, n;

	require_partitions();
	require_host();
	n = partitions();
	host_partitions(n, 20000);
	for (i = 0; i < WORKERS; i++) {
		snprintf(text, sizeof(text), "%d", i + 1);
		workers[i] = actor_start(NOBODY, "worker", kinds[i % count], text, NULL);
	}
	end = now_ms() + seconds() * 1000;
	while (now_ms() < end) {
		host_request_size(size_of_partitions(rand_r(&seed) % (n + 1)));
		resizes++;
		sleep_ms(rand_r(&seed) % 50);
	}
	for (i = 0; i < WORKERS; i++)
		actor_join(&workers[i]);
	ASSERT(settle(), "in use");
	host_partitions(0, 30000);
	ASSERT(!shrink_blocked()[0], "%s", shrink_blocked());
	host_partitions(n, 30000);
	for (i = 0; i < n; i++) {
		ASSERT(partition_is(i, "free"), "%d is %s", i, partition_state(i));
		ASSERT_EQ(partition_users(i), 0);
		ASSERT_EQ(partition_free(i), partition_managed(i));
	}
	note("%llu resizes, %llu plugs, %llu unplugs, %llu kills", resizes, counter("plugs"),
	     counter("unplugs"), counter("oom_kills"));
}

TEST(bursts, .seconds = LIMIT_SECONDS)
{
	static const char * const kinds[] = { "burst" };

	stress(kinds, 1);
}

TEST(gluttons, .seconds = LIMIT_SECONDS)
{
	static const char * const kinds[] = { "glutton", "burst" };

	stress(kinds, 2);
}

TEST(stragglers, .seconds = LIMIT_SECONDS)
{
	static const char * const kinds[] = { "straggle", "burst" };

	stress(kinds, 2);
}

TEST(all_together, .seconds = LIMIT_SECONDS)
{
	static const char * const kinds[] = { "burst", "glutton", "straggle" };

	stress(kinds, 3);
}
