// SPDX-License-Identifier: GPL-2.0
/*
 * With llfree=all: the shared partition is a zone of LLFree's, so what its page cache leaves is the
 * host's to take. The image has a large file, "data", and there is a second memory device.
 */
#include "harness.h"
#include "host.h"
#include "memory.h"
#include "squeezy.h"
#include "system.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define ZONE	"/sys/kernel/mm/llfree/zones/shared/"
#define BLOCKS	"/sys/devices/system/memory"
#define DATA	IMAGE "data"

static u64 read_data(void)
{
	const int fd = OK(open(DATA, O_RDONLY));
	char *buffer = map_anon(MIB);
	u64 bytes = 0;
	ssize_t got;

	while ((got = OK(read(fd, buffer, MIB))) > 0)
		bytes += got;
	close(fd);
	munmap(buffer, MIB);
	return bytes;
}

static u64 free_bytes(void)
{
	u64 bytes;

	/* What it has in hand is not counted. */
	host_rest(true);
	bytes = read_number(ZONE "free_bytes");
	host_rest(false);
	return bytes;
}

TEST(the_shared_partition_is_a_zone)
{
	u64 start;

	require_partitions();
	start = read_number(ZONE "start_address");
	ASSERT_EQ(start % memory_block_bytes(), 0);
	ASSERT_LE(start + shared_bytes(), partition_start(0));
	drop_caches();
	ASSERT_GE(free_bytes(), shared_bytes() / 2);
	ASSERT_LE(free_bytes(), shared_bytes());
}

TEST(cache_that_is_dropped_is_the_hosts)
{
	u64 before, bytes;
	int round;

	require_image_file("data");
	drop_caches();
	before = free_bytes();
	for (round = 0; round < 4; round++) {
		bytes = read_data();
		/* Readahead at the edges may have come from anywhere. */
		ASSERT_LE(free_bytes() + bytes * 9 / 10, before);
		drop_caches();
		ASSERT_GE(free_bytes() + bytes / 10, before);
		ASSERT(WAIT_FOR(!read_number(ZONE "whole_bytes"), PROMPT_MS),
		       "the host leaves %llu bytes", read_number(ZONE "whole_bytes"));
	}
}

TEST(memory_of_the_shared_partition_is_not_taken_offline)
{
	const u64 number = read_number(ZONE "start_address") / memory_block_bytes();
	const int log = kmsg_mark();
	char path[128];

	require_image_file("data");
	snprintf(path, sizeof(path), BLOCKS "/memory%llu/state", number);
	ASSERT(!write_text(path, "offline"), "it is offline");
	ASSERT_EQ(errno, EBUSY);
	ASSERT(kmsg_has(log, "llfree: pages of zone", "cannot be isolated"), "nothing is said");
	ASSERT_EQ(read_data(), read_data());
}

/* The last memory block of the machine: one of the second device. */
static u64 last_block(void)
{
	DIR *blocks = opendir(BLOCKS);
	unsigned long long number, last = 0;
	struct dirent *entry;

	ASSERT(blocks, BLOCKS ": %m");
	while ((entry = readdir(blocks)))
		if (sscanf(entry->d_name, "memory%llu", &number) == 1 && number > last)
			last = number;
	closedir(blocks);
	return last;
}

/* The zone's state has no room for it: what is freed there would be lost. */
TEST(other_memory_stays_offline)
{
	char path[128], state[32];
	const int log = kmsg_mark();

	snprintf(path, sizeof(path), BLOCKS "/memory%llu/state", last_block());
	ASSERT(read_text(path, state, sizeof(state)), "%s: %m", path);
	ASSERT(!strcmp(state, "offline"), "%s: %s", path, state);
	ASSERT(!write_text(path, "online_movable"), "it is online");
	ASSERT_EQ(errno, EINVAL);
	ASSERT(!write_text(path, "online_kernel"), "it is online");
	ASSERT(kmsg_has(log, "llfree: memory at", "stays offline"), "nothing is said");
}
