// SPDX-License-Identifier: GPL-2.0
/*
 * Page faults of many processors in several instances: partitions share the root memory cgroup's
 * lists of pages and have free lists of their own; ordinary cgroups the other way round.
 */
#define _GNU_SOURCE
#include "actor.h"
#include "harness.h"
#include "memory.h"
#include "squeezy.h"
#include "system.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define INSTANCES	4
#define THREADS		2
#define ROUNDS		15
#define ROUND_MS	1000
#define CHUNK		(4 * MIB)

static void *fault(void *unused)
{
	u64 end = now_ms() + ROUND_MS, pages = 0, at;

	(void)unused;
	while (now_ms() < end) {
		char *memory = map_anon(CHUNK);

		OK(madvise(memory, CHUNK, MADV_NOHUGEPAGE));
		for (at = 0; at < CHUNK; at += PAGE)
			memory[at] = 1;
		OK(munmap(memory, CHUNK));
		pages += CHUNK / PAGE;
	}
	return (void *)pages;
}

/* Faults for a while whenever it is told to, and says how many pages it got. */
ACTOR(faults)
{
	pthread_t threads[THREADS];
	char path[64];
	void *pages;
	u64 sum;
	int i;

	snprintf(path, sizeof(path), "/sys/fs/cgroup/faults%s/cgroup.procs", argv[0]);
	ASSERT(write_text(path, "0"), "%s: %m", path);
	tell("ready");
	while (!strcmp(hear(), "go")) {
		for (i = 0; i < THREADS; i++)
			ASSERT(!pthread_create(&threads[i], NULL, fault, NULL), "no thread");
		for (i = 0, sum = 0; i < THREADS; i++) {
			pthread_join(threads[i], &pages);
			sum += (u64)pages;
		}
		tell("%llu", sum);
	}
}

static void start_all(struct actor *actors, int partition)
{
	char name[16], path[64];
	int i;

	for (i = 0; i < INSTANCES; i++) {
		snprintf(name, sizeof(name), "%d%d", partition == ANY, i);
		snprintf(path, sizeof(path), "/sys/fs/cgroup/faults%s", name);
		mkdir(path, 0755);
		actors[i] = actor_start(partition, "faults", name, NULL);
		actor_hear(&actors[i]);
	}
}

/* Pages a second of all together. */
static u64 measure(struct actor *actors)
{
	u64 sum = 0;
	int i;

	for (i = 0; i < INSTANCES; i++)
		actor_tell(&actors[i], "go");
	for (i = 0; i < INSTANCES; i++)
		sum += strtoull(actor_hear(&actors[i]), NULL, 0);
	return sum * 1000 / ROUND_MS;
}

static int by_size(const void *a, const void *b)
{
	u64 x = *(const u64 *)a, y = *(const u64 *)b;

	return x < y ? -1 : x > y;
}

TEST(faults_of_many_processors, .seconds = 300)
{
	struct actor inside[INSTANCES], outside[INSTANCES];
	u64 in[ROUNDS], out[ROUNDS];
	int i;

	require_partitions();
	if (access("/sys/fs/cgroup/cgroup.controllers", R_OK))
		skip("no cgroup v2 at /sys/fs/cgroup");
	write_text("/sys/fs/cgroup/cgroup.subtree_control", "+memory");
	start_all(inside, ANY);
	start_all(outside, NOBODY);
	for (i = 0; i < ROUNDS; i++) {
		in[i] = measure(inside);
		out[i] = measure(outside);
	}
	qsort(in, ROUNDS, sizeof(*in), by_size);
	qsort(out, ROUNDS, sizeof(*out), by_size);
	note("%ld processors", sysconf(_SC_NPROCESSORS_ONLN));
	note("pages a second: %llu (%llu to %llu) in partitions, %llu (%llu to %llu) in cgroups",
	     in[ROUNDS / 2], in[0], in[ROUNDS - 1], out[ROUNDS / 2], out[0], out[ROUNDS - 1]);
	/* One lock for all lists must not be what limits them. */
	ASSERT_GE(in[ROUNDS / 2] * 10, out[ROUNDS / 2] * 7);
	for (i = 0; i < INSTANCES; i++) {
		actor_kill(&inside[i]);
		actor_kill(&outside[i]);
	}
}
