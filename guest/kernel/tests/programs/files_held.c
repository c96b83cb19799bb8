// SPDX-License-Identifier: GPL-2.0
/*
 * Files that live in memory and outlive the process that has filled them hold its partition until
 * they are gone, and no longer.
 */
#define _GNU_SOURCE
#include "actor.h"
#include "harness.h"
#include "memfile.h"
#include "memory.h"
#include "squeezy.h"
#include "system.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

ACTOR(has_many_files)
{
	char name[32];
	int i, fd;

	file_of_my_own(NULL);
	for (i = 0; i < 500; i++) {
		snprintf(name, sizeof(name), "/tmp/%d", i);
		fd = OK(open(name, O_CREAT | O_WRONLY, 0600));
		ASSERT_EQ(ftruncate(fd, PAGE), 0);
		OK(pwrite(fd, name, sizeof(name), 0));
		close(fd);
	}
	ASSERT_EQ(write_zeroes(OK(open("/tmp/large", O_CREAT | O_WRONLY, 0600)), percent(70)),
		  percent(70));
	tell("written");
	hear();
}

TEST(files_go_with_their_mounts)
{
	u64 quarantines = counter("quarantines"), start;
	struct actor actor;
	int round;

	require_partitions();
	for (round = 0; round < 3; round++) {
		actor = actor_start(ANY, "has_many_files", NULL);
		actor_hear(&actor);
		start = now_ms();
		actor_kill(&actor);
		ASSERT(WAIT_FOR(partition_is(actor.partition, "free"), PROMPT_MS), "%s",
		       partition_state(actor.partition));
		note("free %llu ms after the kill", now_ms() - start);
	}
	ASSERT_EQ(counter("quarantines"), quarantines);
}

ACTOR(passes_a_file_on)
{
	int fd = OK(memfd_create("selftest", 0));

	fill(map_file(fd, percent(70)), percent(70), 7);
	send_fd(fd);
	tell("sent");
	hear();
}

/* What is left of @actor is in its partition, and nowhere else, until @release. */
static void assert_held(struct actor *actor, void (*release)(void *holder), void *holder)
{
	u64 before = ordinary_free();
	int partition = actor->partition;

	actor_kill(actor);
	ASSERT(WAIT_FOR(partition_is(partition, "quarantined"), 10000), "%s",
	       partition_state(partition));
	ASSERT_EQ(partition_users(partition), 0);
	ASSERT_LE(partition_free(partition), partition_managed(partition) - percent(65));
	ASSERT_GE(ordinary_free() + 16 * MIB, before);
	release(holder);
	ASSERT(WAIT_FOR(partition_is(partition, "free"), PROMPT_MS), "%s",
	       partition_state(partition));
}

/* An actor that has passed a file of its partition on. */
static struct actor start_and_receive(int *fd)
{
	struct actor actor = actor_start(ANY, "passes_a_file_on", NULL);

	*fd = actor_receive_fd(&actor);
	actor_hear(&actor);
	return actor;
}

TEST(a_file_that_somebody_has_open)
{
	struct actor actor;
	int fd;

	require_partitions();
	actor = start_and_receive(&fd);
	assert_held(&actor, close_fd, &fd);
}

struct mapping {
	char *memory;
	u64 bytes;
};

static void check_and_unmap(void *holder)
{
	struct mapping *mapping = holder;

	ASSERT(filled(mapping->memory, mapping->bytes, 7), "lost");
	OK(munmap(mapping->memory, mapping->bytes));
}

TEST(a_file_that_somebody_has_mapped)
{
	struct mapping mapping = { .bytes = percent(70) };
	struct actor actor;
	int fd;

	require_partitions();
	actor = start_and_receive(&fd);
	mapping.memory = mmap(NULL, mapping.bytes, PROT_READ, MAP_SHARED, fd, 0);
	ASSERT(mapping.memory != MAP_FAILED, "mmap: %m");
	close(fd);
	assert_held(&actor, check_and_unmap, &mapping);
}

/* Sent and never received: in the queue of a socket. */
ACTOR(has_a_file_on_the_way)
{
	int fd = OK(memfd_create("selftest", 0));

	fill(map_file(fd, percent(70)), percent(70), 7);
	send_fd_over(atoi(argv[0]), fd);
	tell("sent");
	hear();
}

TEST(a_file_in_flight)
{
	char number[16];
	struct actor actor;
	int ends[2];

	require_partitions();
	OK(socketpair(AF_UNIX, SOCK_DGRAM, 0, ends));
	snprintf(number, sizeof(number), "%d", ends[0]);
	actor = actor_start(ANY, "has_a_file_on_the_way", number, NULL);
	actor_hear(&actor);
	assert_held(&actor, close_fd, &ends[1]);
}
