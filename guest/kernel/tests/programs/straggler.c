// SPDX-License-Identifier: GPL-2.0
/*
 * Pages that outlive their process: the partition is not free, says so, is not given back, and is
 * the moment they are gone.
 */
#define _GNU_SOURCE
#include "harness.h"
#include "host.h"
#include "squeezy.h"
#include "uring.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#ifndef SO_ZEROCOPY
#define SO_ZEROCOPY 60
#endif
#ifndef MSG_ZEROCOPY
#define MSG_ZEROCOPY 0x4000000
#endif

/* Event-driven means this, even on a slow machine; the driver's own timer takes 50 s and more. */
#define PROMPT_MS	3000
#define HELD_PAGES	16

static bool held(int partition)
{
	return partition_is(partition, "draining") || partition_is(partition, "quarantined");
}

/*
 * @holder is what keeps pages of @partition: while it is there the partition is neither free nor
 * given back; once @release is called it is both.
 */
static void assert_straggling(int partition, void (*release)(void *holder), void *holder)
{
	u64 start, missing;
	char reason[256];

	ASSERT(WAIT_FOR(partition_users(partition) == 0, 5000), "%d users",
	       partition_users(partition));
	ASSERT(WAIT_FOR(held(partition), PROMPT_MS), "%s", partition_state(partition));
	/* It stays so. */
	sleep_ms(200);
	ASSERT(held(partition), "%s", partition_state(partition));
	missing = partition_managed(partition) - partition_free(partition);
	note("%llu pages are held", missing / PAGE);
	ASSERT_GE(missing, PAGE);
	ASSERT_ERRNO(squeezy_assign(partition, 0), EAGAIN);

	host_request_size(size_of_partitions(0));
	ASSERT(WAIT_FOR(shrink_blocked()[0], PROMPT_MS), "no reason is given");
	strcpy(reason, shrink_blocked());
	note("shrink_blocked: %s", reason);
	ASSERT(strstr(reason, "draining") || strstr(reason, "quarantined"), "%s", reason);
	/* The others went. */
	ASSERT(host_wait_size(size_of_partitions(1), 10000), "%llu", host_size());
	sleep_ms(200);
	ASSERT_EQ(host_size(), size_of_partitions(1));

	start = now_ms();
	release(holder);
	ASSERT(host_wait_size(size_of_partitions(0), PROMPT_MS), "%s, %llu pages are held",
	       partition_state(partition),
	       (partition_managed(partition) - partition_free(partition)) / PAGE);
	note("given back %llu ms after the last page was freed", now_ms() - start);
	ASSERT(WAIT_FOR(!shrink_blocked()[0], PROMPT_MS), "%s", shrink_blocked());
	host_partitions(partitions(), 20000);
}

static void close_fd(void *holder)
{
	close(*(int *)holder);
}

ACTOR(leaves_pages_in_a_pipe)
{
	char *memory = map_anon(HELD_PAGES * PAGE);
	struct iovec iov = { memory, HELD_PAGES * PAGE };
	int ends[2];

	OK(pipe(ends));
	OK(fcntl(ends[1], F_SETPIPE_SZ, 64 * PAGE));
	fill(memory, HELD_PAGES * PAGE, 1);
	ASSERT_EQ(vmsplice(ends[1], &iov, 1, 0), HELD_PAGES * PAGE);
	send_fd(ends[0]);
	hear();
}

TEST(pages_in_a_pipe)
{
	struct actor actor;
	char text[8];
	int pipe_end;

	require_partitions();
	require_host();
	actor = actor_start(ANY, "leaves_pages_in_a_pipe", NULL);
	pipe_end = actor_receive_fd(&actor);
	actor_kill(&actor);
	/* What they hold is still what was written. */
	ASSERT_EQ(read(pipe_end, text, 8), 8);
	ASSERT_EQ(*(u64 *)text, 1);
	assert_straggling(actor.partition, close_fd, &pipe_end);
}

TEST(pages_in_a_pipe_that_is_read)
{
	static char text[HELD_PAGES * PAGE];
	struct actor actor;
	size_t got = 0;
	int pipe_end;

	require_partitions();
	actor = actor_start(ANY, "leaves_pages_in_a_pipe", NULL);
	pipe_end = actor_receive_fd(&actor);
	actor_kill(&actor);
	ASSERT(WAIT_FOR(held(actor.partition), PROMPT_MS), "%s", partition_state(actor.partition));
	while (got < sizeof(text))
		got += OK(read(pipe_end, text + got, sizeof(text) - got));
	ASSERT(WAIT_FOR(partition_is(actor.partition, "free"), PROMPT_MS), "%s",
	       partition_state(actor.partition));
}

ACTOR(leaves_pages_in_a_socket)
{
	char *memory = map_anon(HELD_PAGES * PAGE);
	struct iovec iov = { memory, HELD_PAGES * PAGE };
	int pipe_ends[2], ends[2];
	ssize_t moved;

	OK(pipe(pipe_ends));
	OK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends));
	fill(memory, HELD_PAGES * PAGE, 1);
	ASSERT_EQ(vmsplice(pipe_ends[1], &iov, 1, 0), HELD_PAGES * PAGE);
	moved = splice(pipe_ends[0], NULL, ends[0], NULL, HELD_PAGES * PAGE, SPLICE_F_NONBLOCK);
	ASSERT(moved > 0, "splice: %m");
	send_fd(ends[1]);
	hear();
}

TEST(pages_in_a_socket)
{
	struct actor actor;
	int end;

	require_partitions();
	require_host();
	actor = actor_start(ANY, "leaves_pages_in_a_socket", NULL);
	end = actor_receive_fd(&actor);
	actor_kill(&actor);
	ASSERT(WAIT_FOR(!partition_is(actor.partition, "assigned"), PROMPT_MS), "assigned");
	sleep_ms(100);
	if (partition_is(actor.partition, "free"))
		skip("this kernel copies what is spliced into a unix socket");
	assert_straggling(actor.partition, close_fd, &end);
}

/* The ring is its parent's; the pages are its own. */
ACTOR(leaves_pages_in_a_ring)
{
	char *memory = map_anon(HELD_PAGES * PAGE);

	fill(memory, HELD_PAGES * PAGE, 1);
	uring_register_buffer(atoi(argv[0]), memory, HELD_PAGES * PAGE);
	tell("pinned");
	hear();
}

TEST(pages_pinned_by_io_uring)
{
	struct actor actor;
	char number[16];
	int ring;

	require_partitions();
	require_host();
	ring = uring_create();
	OK(fcntl(ring, F_SETFD, 0));
	snprintf(number, sizeof(number), "%d", ring);
	actor = actor_start(ANY, "leaves_pages_in_a_ring", number, NULL);
	actor_hear(&actor);
	actor_kill(&actor);
	assert_straggling(actor.partition, close_fd, &ring);
}

ACTOR(pins_for_itself)
{
	char *memory = map_anon(MIB);
	int ring = uring_create();

	fill(memory, MIB / 2, 1);
	uring_register_buffer(ring, memory, MIB);
	hear();
}

TEST(pages_that_a_dead_process_had_pinned_itself)
{
	struct actor actor;
	u64 start;

	require_partitions();
	actor = actor_start(ANY, "pins_for_itself", NULL);
	actor_tell(&actor, "go");
	actor_join(&actor);
	/* io_uring lets go of them in a work item of its own. */
	start = now_ms();
	ASSERT(WAIT_FOR(partition_is(actor.partition, "free"), PROMPT_MS),
	       "%s, %llu pages are held", partition_state(actor.partition),
	       (partition_managed(actor.partition) - partition_free(actor.partition)) / PAGE);
	note("free %llu ms after the exit", now_ms() - start);
}

/* Sends without copying to somebody who does not read. */
ACTOR(sends_without_copying)
{
	struct sockaddr_in address = { .sin_family = AF_INET,
				       .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	char *memory = map_anon(HELD_PAGES * PAGE);
	socklen_t length = sizeof(address);
	int listener, sender, receiver, one = 1;

	listener = OK(socket(AF_INET, SOCK_STREAM, 0));
	OK(bind(listener, (struct sockaddr *)&address, sizeof(address)));
	OK(listen(listener, 1));
	OK(getsockname(listener, (struct sockaddr *)&address, &length));
	sender = OK(socket(AF_INET, SOCK_STREAM, 0));
	if (setsockopt(sender, SOL_SOCKET, SO_ZEROCOPY, &one, sizeof(one)))
		skip("no SO_ZEROCOPY: %m");
	OK(connect(sender, (struct sockaddr *)&address, sizeof(address)));
	receiver = OK(accept(listener, NULL, NULL));
	fill(memory, HELD_PAGES * PAGE, 1);
	ASSERT(send(sender, memory, HELD_PAGES * PAGE, MSG_ZEROCOPY | MSG_DONTWAIT) > 0,
	       "send: %m");
	send_fd(receiver);
	hear();
}

TEST(pages_sent_without_copying)
{
	struct actor actor;
	int receiver;

	require_partitions();
	bring_loopback_up();
	actor = actor_start(ANY, "sends_without_copying", NULL);
	receiver = actor_receive_fd(&actor);
	actor_kill(&actor);
	/* Loopback copies on delivery, so nothing need be left; if it is, then not for long. */
	close(receiver);
	ASSERT(WAIT_FOR(partition_is(actor.partition, "free"), PROMPT_MS), "%s",
	       partition_state(actor.partition));
}

ACTOR(has_memory_to_look_at)
{
	char *memory = map_anon(16 * MIB);

	fill(memory, 16 * MIB, 1);
	tell("%p", memory);
	hear();
}

TEST(an_open_proc_pid_mem_holds_nothing)
{
	struct actor actor;
	char path[64], byte;
	int fd;

	require_partitions();
	actor = actor_start(ANY, "has_memory_to_look_at", NULL);
	actor_hear(&actor);
	snprintf(path, sizeof(path), "/proc/%d/mem", actor.pid);
	fd = OK(open(path, O_RDWR));
	actor_kill(&actor);
	ASSERT(WAIT_FOR(partition_is(actor.partition, "free"), PROMPT_MS), "%s",
	       partition_state(actor.partition));
	ASSERT_EQ(pread(fd, &byte, 1, 0x1000), 0);
	close(fd);
}

/* Reads another process's memory for as long as it is there. */
ACTOR(keeps_reading)
{
	pid_t pid = atoi(argv[0]);
	char *remote = (char *)strtoull(argv[1], NULL, 0), *local = map_anon(MIB);
	struct iovec to = { local, MIB }, from = { remote, MIB };
	u64 rounds = 0;

	tell("reading");
	while (process_vm_readv(pid, &to, 1, &from, 1, 0) > 0)
		rounds++;
	if (errno == ENOSYS)
		skip("no process_vm_readv: CONFIG_CROSS_MEMORY_ATTACH");
	ASSERT(rounds || errno == ESRCH || errno == EFAULT, "process_vm_readv: %m");
}

TEST(readers_of_a_dying_process)
{
	struct actor actor, readers[3];
	char pid[16], address[32];
	int i, round;

	require_partitions();
	for (round = 0; round < 5; round++) {
		actor = actor_start(ANY, "has_memory_to_look_at", NULL);
		strcpy(address, actor_hear(&actor));
		snprintf(pid, sizeof(pid), "%d", actor.pid);
		for (i = 0; i < 3; i++) {
			readers[i] = actor_start(NOBODY, "keeps_reading", pid, address, NULL);
			actor_hear(&readers[i]);
		}
		actor_kill(&actor);
		for (i = 0; i < 3; i++)
			actor_join(&readers[i]);
		ASSERT(WAIT_FOR(partition_is(actor.partition, "free"), PROMPT_MS), "%s",
		       partition_state(actor.partition));
	}
}

TEST(another_partition_is_taken_while_one_has_stragglers)
{
	struct actor actor;
	int pipe_end, last = 0;

	require_partitions();
	require_host();
	if (partitions() < 2)
		skip("there is no other partition");
	last = partitions() - 1;
	host_partitions(partitions(), 20000);
	/* The one a shrink would take first, whichever end that is, is not the only one. */
	actor = actor_start(last, "leaves_pages_in_a_pipe", NULL);
	pipe_end = actor_receive_fd(&actor);
	actor_kill(&actor);
	ASSERT(WAIT_FOR(held(last), PROMPT_MS), "%s", partition_state(last));
	host_resize(size_of_partitions(last), 10000);
	ASSERT(held(last), "%s", partition_state(last));
	ASSERT(!shrink_blocked()[0], "%s", shrink_blocked());
	close(pipe_end);
	ASSERT(WAIT_FOR(partition_is(last, "free"), PROMPT_MS), "%s", partition_state(last));
	host_partitions(partitions(), 20000);
}

TEST(stragglers_do_not_hold_back_a_waiter)
{
	struct actor actor, next;
	int pipe_end, partition;

	require_partitions();
	actor = actor_start(0, "leaves_pages_in_a_pipe", NULL);
	pipe_end = actor_receive_fd(&actor);
	actor_kill(&actor);
	partition = 0;
	ASSERT(WAIT_FOR(held(partition), PROMPT_MS), "%s", partition_state(partition));
	/* Any other one does. */
	if (partitions_in_state("free")) {
		next = actor_start(ANY, "has_memory_to_look_at", NULL);
		ASSERT(next.partition != partition, "%d", next.partition);
		actor_kill(&next);
	}
	close(pipe_end);
}

/*
 * Puts both ends of a socket pair and a pipe in flight on the socket pair, and exits. Not an actor:
 * closing an actor's own socket collects garbage.
 */
PLAIN(leaves_a_pipe_in_flight_on_itself)
{
	char *memory = map_anon(HELD_PAGES * PAGE), text = 0;
	struct iovec spliced = { memory, HELD_PAGES * PAGE }, byte = { &text, 1 };
	union {
		char bytes[CMSG_SPACE(4 * sizeof(int))];
		struct cmsghdr align;
	} control = { 0 };
	struct msghdr message = {
		.msg_iov = &byte, .msg_iovlen = 1,
		.msg_control = control.bytes, .msg_controllen = sizeof(control.bytes),
	};
	struct cmsghdr *header = CMSG_FIRSTHDR(&message);
	int fds[4];

	fill(memory, HELD_PAGES * PAGE, 1);
	OK(pipe(fds));
	OK(socketpair(AF_UNIX, SOCK_STREAM, 0, fds + 2));
	ASSERT(vmsplice(fds[1], &spliced, 1, 0) > 0, "vmsplice: %m");
	header->cmsg_level = SOL_SOCKET;
	header->cmsg_type = SCM_RIGHTS;
	header->cmsg_len = CMSG_LEN(sizeof(fds));
	memcpy(CMSG_DATA(header), fds, sizeof(fds));
	ASSERT_EQ(sendmsg(fds[2], &message, 0), 1);
}

TEST(a_pipe_that_is_in_flight_on_itself)
{
	int i, status, unused;
	pid_t pid;

	require_partitions();
	unused = partitions_in_state("free");
	for (i = 0; i < 2; i++) {
		pid = OK(fork());
		if (!pid) {
			OK(squeezy_assign(ANY, 1000));
			exec_body("leaves_a_pipe_in_flight_on_itself", NULL);
		}
		OK(waitpid(pid, &status, 0));
		ASSERT_EQ(status, 0);
	}
	ASSERT(WAIT_FOR(partitions_in_state("free") == unused, PROMPT_MS), "%d quarantined",
	       partitions_in_state("quarantined"));
}

/* Sets per-CPU lists of all zones up again, as whoever tunes them does. */
static void tune_lists(void)
{
	ASSERT(write_text("/proc/sys/vm/percpu_pagelist_high_fraction", "8"), "%m");
	ASSERT(write_text("/proc/sys/vm/percpu_pagelist_high_fraction", "0"), "%m");
}

/* The same, as a processor does that comes. */
static void turn_processor_off_and_on(void)
{
	if (access("/sys/devices/system/cpu/cpu1/online", W_OK))
		skip("there is no processor to turn off");
	ASSERT(write_text("/sys/devices/system/cpu/cpu1/online", "0"), "%m");
	ASSERT(write_text("/sys/devices/system/cpu/cpu1/online", "1"), "%m");
}

/* A free after that is seen nevertheless, at once. */
static void assert_watched_after(void (*change)(void))
{
	static char text[HELD_PAGES * PAGE];
	struct actor actor;
	int pipe_end;
	size_t got = 0;

	require_partitions();
	actor = actor_start(ANY, "leaves_pages_in_a_pipe", NULL);
	pipe_end = actor_receive_fd(&actor);
	actor_kill(&actor);
	ASSERT(WAIT_FOR(partition_is(actor.partition, "quarantined"), PROMPT_MS), "%s",
	       partition_state(actor.partition));
	/* Until nobody looks without being told to for some seconds. */
	sleep_ms(4000);
	change();
	while (got < sizeof(text))
		got += OK(read(pipe_end, text + got, sizeof(text) - got));
	ASSERT(WAIT_FOR(partition_is(actor.partition, "free"), 500), "%s, %llu pages are held",
	       partition_state(actor.partition),
	       (partition_managed(actor.partition) - partition_free(actor.partition)) / PAGE);
	close(pipe_end);
}

TEST(a_free_is_seen_after_per_cpu_lists_were_tuned)
{
	assert_watched_after(tune_lists);
}

TEST(a_free_is_seen_after_a_processor_came)
{
	assert_watched_after(turn_processor_off_and_on);
}
