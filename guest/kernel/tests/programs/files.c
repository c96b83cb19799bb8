// SPDX-License-Identifier: GPL-2.0
/*
 * Files that live in memory (tmpfs, memfd, shared anonymous memory, SysV segments) are in the
 * partition of whoever fills them: they count there, fill it, and hold it until they are gone.
 */
#define _GNU_SOURCE
#include "harness.h"
#include "squeezy.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

/* Event-driven means this, even on a slow machine. */
#define PROMPT_MS	3000

static char *map_file(int fd, u64 bytes)
{
	char *memory;

	OK(ftruncate(fd, bytes));
	memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	ASSERT(memory != MAP_FAILED, "mmap: %m");
	return memory;
}

/* A file of a tmpfs that ends with the caller. */
static int file_of_my_own(const char *options)
{
	OK(unshare(CLONE_NEWNS));
	OK(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL));
	OK(mount("tmpfs", "/tmp", "tmpfs", 0, options));
	return OK(open("/tmp/file", O_CREAT | O_RDWR, 0600));
}

static u64 write_zeroes(int fd, u64 bytes)
{
	static char zeroes[MIB];
	u64 written = 0;
	ssize_t got;

	while (written < bytes) {
		got = write(fd, zeroes, sizeof(zeroes));
		if (got < 0)
			break;
		written += got;
	}
	return written;
}

static void assert_filled_inside(char *memory, u64 bytes)
{
	fill(memory, bytes, 1);
	assert_range_in(memory, bytes, OK(squeezy_get(0)));
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
	assert_range_in(memory, 8 * MIB, OK(squeezy_get(0)));
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
	assert_range_in(memory, 8 * MIB, OK(squeezy_get(0)));
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

/* Charges, and what fills up. */

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
	u64 kills = read_field("/proc/vmstat", "oom_kill");

	require_partitions();
	actor = actor_start(ANY, "has_a_full_file_system", NULL);
	actor_join(&actor);
	ASSERT_EQ(read_field("/proc/vmstat", "oom_kill"), kills);
}

ACTOR(works_beside)
{
	u64 bytes = strtoull(argv[0], NULL, 0);
	char *memory = map_anon(bytes);

	fill(memory, bytes, 5);
	tell("ready");
	while (!strcmp(hear(), "check"))
		tell(filled(memory, bytes, 5) ? "intact" : "broken");
}

static struct actor start_beside(int partition, u64 bytes)
{
	struct actor actor;
	char text[32];

	snprintf(text, sizeof(text), "%llu", bytes);
	actor = actor_start(partition, "works_beside", text, NULL);
	actor_hear(&actor);
	return actor;
}

static void assert_intact(struct actor *actor)
{
	actor_tell(actor, "check");
	ASSERT(!strcmp(actor_hear(actor), "intact"), "memory of %s changed", actor->name);
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
	neighbour = start_beside(ANY, percent(80));
	outsider = start_beside(NOBODY, 8 * MIB);
	for (i = 0; i < 4; i++) {
		u64 kills = read_field("/proc/vmstat", "oom_kill");
		int status;

		before = ordinary_free();
		glutton = actor_start(ANY, "fills_its_partition", ways[i][0], ways[i][1], NULL);
		status = actor_wait(&glutton);
		ASSERT(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL, "%s, %s: %#x",
		       ways[i][0], ways[i][1], status);
		ASSERT_EQ(read_field("/proc/vmstat", "oom_kill"), kills + 1);
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
	int status;

	require_partitions();
	actor = actor_start(ANY, "starves_beside_its_file", NULL);
	status = actor_wait(&actor);
	ASSERT(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL, "%#x", status);
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

/* Files that outlive the process. */

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

static void close_fd(void *holder)
{
	close(*(int *)holder);
}

TEST(a_file_that_somebody_has_open)
{
	struct actor actor;
	int fd;

	require_partitions();
	actor = actor_start(ANY, "passes_a_file_on", NULL);
	fd = actor_receive_fd(&actor);
	actor_hear(&actor);
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
	actor = actor_start(ANY, "passes_a_file_on", NULL);
	fd = actor_receive_fd(&actor);
	actor_hear(&actor);
	mapping.memory = mmap(NULL, mapping.bytes, PROT_READ, MAP_SHARED, fd, 0);
	ASSERT(mapping.memory != MAP_FAILED, "mmap: %m");
	close(fd);
	assert_held(&actor, check_and_unmap, &mapping);
}

/* Sent and never received: in the queue of a socket. */
ACTOR(has_a_file_on_the_way)
{
	char byte = 0, control[CMSG_SPACE(sizeof(int))] = "";
	struct iovec iov = { &byte, 1 };
	struct msghdr message = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control,
				  .msg_controllen = sizeof(control) };
	struct cmsghdr *header = CMSG_FIRSTHDR(&message);
	int fd = OK(memfd_create("selftest", 0));

	fill(map_file(fd, percent(70)), percent(70), 7);
	header->cmsg_level = SOL_SOCKET;
	header->cmsg_type = SCM_RIGHTS;
	header->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(header), &fd, sizeof(int));
	OK(sendmsg(atoi(argv[0]), &message, 0));
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
