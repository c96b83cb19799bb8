// SPDX-License-Identifier: GPL-2.0
/*
 * File pages of assigned processes: from the shared partition, once for all of them, and never a
 * reason to kill. The image has a large one, "data".
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
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define DATA	IMAGE "data"

static u64 data_bytes(void)
{
	struct stat st;

	OK(stat(DATA, &st));
	return st.st_size / PAGE * PAGE;
}

static char *map_data(int prot)
{
	int fd = OK(open(DATA, O_RDONLY));
	char *memory = mmap(NULL, data_bytes(), prot, MAP_PRIVATE, fd, 0);

	ASSERT(memory != MAP_FAILED, "mmap: %m");
	return memory;
}

static u64 sum(const char *memory, u64 bytes)
{
	u64 i, result = 0;

	for (i = 0; i < bytes; i += PAGE)
		result += *(volatile unsigned char *)(memory + i);
	return result;
}

ACTOR(maps_the_file)
{
	u64 bytes = data_bytes();
	char *memory = map_data(PROT_READ);
	struct places seen;

	sum(memory, bytes);
	count_places(memory, bytes, &seen);
	tell("%llu", pfn_of(memory));
	note("file pages: %lu shared, %lu ordinary", seen.shared, seen.ordinary);
	ASSERT_EQ(seen.shared + seen.ordinary, bytes / PAGE);
	/* Readahead at the edges may have come from anywhere. */
	ASSERT_GE(seen.shared, bytes / PAGE * 9 / 10);
	assert_confined(getpid(), 1);
	hear();
}

TEST(mapped_files_are_in_the_shared_partition_once)
{
	struct actor first, second;
	u64 frame;

	require_partitions();
	require_image_file("data");
	if (shared_bytes() < data_bytes() * 3 / 2)
		skip("the shared partition is too small for the file");
	drop_caches();
	first = actor_start(ANY, "maps_the_file", NULL);
	frame = strtoull(actor_hear(&first), NULL, 10);
	second = actor_start(ANY, "maps_the_file", NULL);
	ASSERT_EQ(strtoull(actor_hear(&second), NULL, 10), frame);
	actor_kill(&first);
	/* It outlives who brought it. */
	actor_tell(&second, "go");
	actor_join(&second);
}

TEST_INSIDE(files_that_are_read_are_in_the_shared_partition)
{
	struct places seen;
	u64 bytes;
	char *buffer = map_anon(MIB), *memory;
	int fd;

	require_image_file("data");
	bytes = data_bytes();
	if (shared_bytes() < bytes * 3 / 2)
		skip("the shared partition is too small for the file");
	drop_caches();
	fd = OK(open(DATA, O_RDONLY));
	while (read(fd, buffer, MIB) > 0)
		;
	memory = map_data(PROT_READ);
	sum(memory, bytes);
	count_places(memory, bytes, &seen);
	ASSERT_EQ(seen.shared + seen.ordinary, bytes / PAGE);
	ASSERT_GE(seen.shared, bytes / PAGE * 9 / 10);
	assert_range_in(buffer, MIB, OK(squeezy_get(0)));
}

ACTOR(reads_the_file_in_a_cgroup)
{
	enter_cgroup();
	sum(map_data(PROT_READ), data_bytes());
	tell("read");
	hear();
}

TEST(pages_of_the_shared_partition_are_charged_to_nobody)
{
	struct actor actor;

	require_partitions();
	require_image_file("data");
	if (shared_bytes() < data_bytes() * 3 / 2)
		skip("the shared partition is too small for the file");
	drop_caches();
	make_cgroup(8 * MIB);
	actor = actor_start(ANY, "reads_the_file_in_a_cgroup", NULL);
	actor_hear(&actor);
	/* Readahead at the edges may have come from anywhere. */
	ASSERT_LE(read_field(CGROUP "/memory.stat", "file"), data_bytes() / 10);
	ASSERT_EQ(read_field(CGROUP "/memory.events", "max"), 0);
	actor_kill(&actor);
	remove_cgroup();
}

/* What does not find room there is the reader's, who reclaims it. */
TEST(pages_that_fall_back_are_bounded_by_the_cgroup)
{
	struct actor hog, actor;
	char text[32];
	u64 before;

	require_partitions();
	require_image_file("data");
	drop_caches();
	snprintf(text, sizeof(text), "%llu", shared_bytes());
	hog = actor_start(NOBODY, "fills_shared_partition", text, NULL);
	actor_hear(&hog);
	before = ordinary_free();
	make_cgroup(8 * MIB);
	actor = actor_start(ANY, "reads_the_file_in_a_cgroup", NULL);
	actor_hear(&actor);
	ASSERT_LE(read_number(CGROUP "/memory.current"), 8 * MIB);
	ASSERT_EQ(read_field(CGROUP "/memory.events", "oom_kill"), 0);
	/* Less than the file by far; processors keep some MiB of freed pages in their lists. */
	ASSERT_GE(data_bytes(), 24 * MIB);
	ASSERT_GE(ordinary_free() + 16 * MIB, before);
	actor_kill(&actor);
	actor_kill(&hog);
	remove_cgroup();
}

TEST_INSIDE(private_copies_of_file_pages_are_inside)
{
	u64 bytes, at;
	char *memory;

	require_image_file("data");
	bytes = data_bytes();
	memory = map_data(PROT_READ | PROT_WRITE);
	sum(memory, bytes);
	for (at = 0; at < bytes; at += PAGE)
		memory[at]++;
	assert_range_in(memory, bytes, OK(squeezy_get(0)));
}

/* With the shared partition full of what cannot be dropped, cache goes elsewhere. */
ACTOR(fills_shared_partition)
{
	u64 bytes = strtoull(argv[0], NULL, 0);

	fill(map_anon(bytes), bytes, 1);
	tell("filled");
	hear();
}

TEST(a_full_shared_partition_kills_nobody)
{
	struct actor hog, reader;
	char text[32];
	u64 kills;

	require_partitions();
	require_image_file("data");
	kills = oom_kills();
	drop_caches();
	/* Unassigned memory goes to ZONE_MOVABLE first: that is the shared partition. */
	snprintf(text, sizeof(text), "%llu", shared_bytes());
	hog = actor_start(NOBODY, "fills_shared_partition", text, NULL);
	actor_hear(&hog);
	reader = actor_start(ANY, "reads_the_file_twice", NULL);
	actor_join(&reader);
	ASSERT_EQ(oom_kills(), kills);
	actor_kill(&hog);
}

ACTOR(reads_the_file_twice)
{
	char *memory = map_data(PROT_READ);
	struct audit seen;
	u64 first;

	first = sum(memory, data_bytes());
	OK(madvise(memory, data_bytes(), MADV_DONTNEED));
	ASSERT_EQ(sum(memory, data_bytes()), first);
	audit(getpid(), OK(squeezy_get(0)), &seen);
	ASSERT_EQ(seen.file_partition, 0);
	ASSERT_EQ(seen.anon_outside, 0);
}

/* Cache of assigned processes, dropped and read again while their partition is full. */
ACTOR(reads_with_a_full_partition)
{
	u64 bytes = partition_bytes() / 100 * 90;
	char *memory;

	fill(map_anon(bytes), bytes, 1);
	drop_caches();
	memory = map_data(PROT_READ);
	sum(memory, data_bytes());
}

TEST(a_full_partition_still_reads_files)
{
	struct actor actor;

	require_partitions();
	require_image_file("data");
	actor = actor_start(ANY, "reads_with_a_full_partition", NULL);
	actor_join(&actor);
}
