// SPDX-License-Identifier: GPL-2.0
/*
 * Files that live in memory count in their partition and nowhere else, and fill it: then a process
 * inside is killed, and nobody else notices.
 */
#define _GNU_SOURCE
#include "actor.h"
#include "harness.h"
#include "instance.h"
#include "memfile.h"
#include "memory.h"
#include "squeezy.h"
#include "system.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

ACTOR(has_files_in_a_cgroup)
{
	enter_cgroup();
	ASSERT_EQ(write_zeroes(file_of_my_own(NULL), percent(50)), percent(50));
	tell("written");
	hear();
}

TEST(files_are_not_charged_to_the_cgroup)
{
	struct actor actor;

	require_partitions();
	make_cgroup(16 * MIB);
	actor = actor_start(ANY, "has_files_in_a_cgroup", NULL);
	actor_hear(&actor);
	ASSERT_LE(read_number(CGROUP "/memory.current"), 8 * MIB);
	ASSERT_EQ(read_field(CGROUP "/memory.events", "max"), 0);
	actor_kill(&actor);
	remove_cgroup();
}

ACTOR(has_a_full_file_system)
{
	char options[64];
	int fd;

	snprintf(options, sizeof(options), "size=%llu", percent(50));
	fd = file_of_my_own(options);
	ASSERT_EQ(write_zeroes(fd, percent(60)), percent(50));
	ASSERT_EQ(errno, ENOSPC);
}

TEST(the_limit_of_a_file_system_comes_first)
{
	struct actor actor;
	u64 kills = oom_kills();

	require_partitions();
	actor = actor_start(ANY, "has_a_full_file_system", NULL);
	actor_join(&actor);
	ASSERT_EQ(oom_kills(), kills);
}

ACTOR(fills_its_partition)
{
	int fd = strcmp(argv[0], "memfd") ? file_of_my_own("size=100%") :
					    (int)OK(memfd_create("selftest", 0));
	char *memory;

	if (!strcmp(argv[1], "write")) {
		write_zeroes(fd, percent(200));
	} else {
		memory = map_file(fd, percent(200));
		fill(memory, percent(200), 1);
	}
	FAIL("it has twice what its partition has");
}

TEST(a_partition_full_of_files_kills_inside_only)
{
	static const char * const ways[][2] = {
		{ "tmpfs", "write" }, { "tmpfs", "map" }, { "memfd", "write" }, { "memfd", "map" },
	};
	struct actor neighbour, outsider, glutton;
	unsigned int i;
	u64 before;

	require_partitions();
	neighbour = start_instance(ANY, percent(80));
	outsider = start_instance(NOBODY, 8 * MIB);
	for (i = 0; i < 4; i++) {
		u64 kills = oom_kills();

		before = ordinary_free();
		glutton = actor_start(ANY, "fills_its_partition", ways[i][0], ways[i][1], NULL);
		note("%s, %s", ways[i][0], ways[i][1]);
		actor_join_killed(&glutton);
		ASSERT_EQ(oom_kills(), kills + 1);
		ASSERT(WAIT_FOR(partition_is(glutton.partition, "free"), PROMPT_MS), "%s",
		       partition_state(glutton.partition));
		ASSERT_GE(ordinary_free() + percent(20), before);
		assert_intact(&neighbour);
		assert_intact(&outsider);
	}
}

/* Nobody has the file open or mapped, and it is larger than what anybody could free. */
ACTOR(starves_beside_its_file)
{
	close(file_of_my_own("size=100%"));
	ASSERT_EQ(write_zeroes(OK(open("/tmp/file", O_WRONLY)), percent(80)), percent(80));
	fill(map_anon(percent(50)), percent(50), 1);
	FAIL("it has more than its partition has");
}

TEST(memory_is_short_beside_a_large_file)
{
	struct actor actor;

	require_partitions();
	actor = actor_start(ANY, "starves_beside_its_file", NULL);
	actor_join_killed(&actor);
	ASSERT(WAIT_FOR(partition_is(actor.partition, "free"), PROMPT_MS), "%s",
	       partition_state(actor.partition));
}

/* Several processes that write to one file system, each waiting for the others' locks. */
ACTOR(fills_it_together)
{
	int fd = file_of_my_own("size=100%"), i;

	for (i = 0; i < 4; i++) {
		if (!OK(fork())) {
			char *memory = map_anon(percent(10));

			fill(memory, percent(10), 1);
			write_zeroes(fd, percent(100));
			/* Whoever comes to the end has outlived the others; there is more. */
			for (;;)
				write_zeroes(fd, percent(100));
		}
	}
	for (;;)
		write_zeroes(fd, percent(100));
}

TEST(writers_of_one_file_end_all_the_same)
{
	struct actor actor;

	require_partitions();
	actor = actor_start(ANY, "fills_it_together", NULL);
	actor_wait(&actor);
	ASSERT(WAIT_FOR(partition_is(actor.partition, "free"), 20000), "%s, %d users",
	       partition_state(actor.partition), partition_users(actor.partition));
}
