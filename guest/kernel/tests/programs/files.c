// SPDX-License-Identifier: GPL-2.0
/*
 * Files that live in memory (tmpfs, memfd, shared anonymous memory, SysV segments) are in the
 * partition of whoever fills them. See files_full.c and files_held.c for what follows from that.
 */
#define _GNU_SOURCE
#include "actor.h"
#include "harness.h"
#include "memfile.h"
#include "memory.h"
#include "pages.h"
#include "squeezy.h"
#include "system.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <unistd.h>

static void assert_filled_inside(char *memory, u64 bytes)
{
	fill(memory, bytes, 1);
	assert_range_in(memory, bytes, own_partition());
	ASSERT(filled(memory, bytes, 1), "lost");
}

TEST_INSIDE(shared_anonymous_memory)
{
	char *memory = mmap(NULL, 4 * MIB, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
			    -1, 0);

	ASSERT(memory != MAP_FAILED, "mmap: %m");
	assert_filled_inside(memory, 4 * MIB);
}

TEST_INSIDE(memfd)
{
	assert_filled_inside(map_file(OK(memfd_create("selftest", 0)), 4 * MIB), 4 * MIB);
}

TEST_INSIDE(tmpfs_file_that_is_mapped)
{
	assert_filled_inside(map_file(file_of_my_own(NULL), 4 * MIB), 4 * MIB);
}

TEST_INSIDE(tmpfs_file_that_is_written)
{
	int fd = file_of_my_own(NULL);
	char *memory;

	ASSERT_EQ(write_zeroes(fd, 4 * MIB), 4 * MIB);
	OK(fallocate(fd, 0, 4 * MIB, 4 * MIB));
	memory = map_file(fd, 8 * MIB);
	ASSERT(all_zero(memory, 8 * MIB), "not zero");
	assert_range_in(memory, 8 * MIB, own_partition());
}

TEST_INSIDE(sysv_segment)
{
	int id = OK(shmget(IPC_PRIVATE, 4 * MIB, 0600));
	char *memory = shmat(id, NULL, 0);

	ASSERT(memory != (void *)-1, "shmat: %m");
	OK(shmctl(id, IPC_RMID, NULL));
	assert_filled_inside(memory, 4 * MIB);
}

TEST_INSIDE(collapsed_file)
{
	char *memory = map_huge(8 * MIB);
	int fd = OK(memfd_create("selftest", 0));

	OK(ftruncate(fd, 8 * MIB));
	memory = mmap(memory, 8 * MIB, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0);
	ASSERT(memory != MAP_FAILED, "mmap: %m");
	fill(memory, 8 * MIB, 1);
	OK(madvise(memory, 8 * MIB, MADV_COLLAPSE));
	ASSERT_GE(read_field("/proc/self/smaps_rollup", "ShmemPmdMapped") * KIB, 8 * MIB);
	ASSERT(filled(memory, 8 * MIB, 1), "lost");
	assert_range_in(memory, 8 * MIB, own_partition());
}

TEST(files_of_others_are_in_no_partition)
{
	char *memory = map_file(OK(memfd_create("selftest", 0)), 16 * MIB);
	struct places seen;

	require_partitions();
	fill(memory, 16 * MIB, 1);
	count_places(memory, 16 * MIB, &seen);
	ASSERT_EQ(seen.shared + seen.ordinary, 16 * MIB / PAGE);
}

/* The file is the other side's; whoever fills a page has it. */
ACTOR(fills_half_of_a_file)
{
	char *memory = mmap(NULL, 8 * MIB, PROT_READ | PROT_WRITE, MAP_SHARED, atoi(argv[0]), 0);

	ASSERT(memory != MAP_FAILED, "mmap: %m");
	assert_filled_inside(memory, 4 * MIB);
	tell("filled");
	hear();
}

TEST(a_page_is_of_whoever_fills_it)
{
	int fd = OK(memfd_create("selftest", 0));
	char *memory = map_file(fd, 8 * MIB), number[16];
	struct actor actor;
	struct places seen;

	require_partitions();
	snprintf(number, sizeof(number), "%d", fd);
	actor = actor_start(ANY, "fills_half_of_a_file", number, NULL);
	actor_hear(&actor);
	fill(memory + 4 * MIB, 4 * MIB, 2);
	count_places(memory + 4 * MIB, 4 * MIB, &seen);
	ASSERT_EQ(seen.shared + seen.ordinary, 4 * MIB / PAGE);
	actor_kill(&actor);
	OK(munmap(memory, 8 * MIB));
	close(fd);
	ASSERT(WAIT_FOR(partition_is(actor.partition, "free"), PROMPT_MS), "%s",
	       partition_state(actor.partition));
}
