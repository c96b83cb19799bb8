// SPDX-License-Identifier: GPL-2.0
/*
 * Pages that outlive their process: the partition is not free, says so, is not given back, and is
 * the moment they are gone.
 */
#define _GNU_SOURCE
#include "actor.h"
#include "harness.h"
#include "host.h"
#include "instance.h"
#include "memory.h"
#include "sent.h"
#include "squeezy.h"
#include "stragglers.h"
#include "uring.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

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
	ASSERT(WAIT_FOR(partition_is_held(partition), PROMPT_MS), "%s", partition_state(partition));
	/* It stays so. */
	sleep_ms(200);
	ASSERT(partition_is_held(partition), "%s", partition_state(partition));
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

TEST(pages_in_a_pipe)
{
	struct stragglers left;
	char text[8];

	require_partitions();
	require_host();
	left = leave_stragglers(ANY);
	/* What they hold is still what was written. */
	ASSERT_EQ(read(left.pipe, text, 8), 8);
	ASSERT_EQ(*(u64 *)text, 1);
	assert_straggling(left.partition, close_fd, &left.pipe);
}

TEST(pages_in_a_pipe_that_is_read)
{
	struct stragglers left;

	require_partitions();
	left = leave_stragglers(ANY);
	ASSERT(WAIT_FOR(partition_is_held(left.partition), PROMPT_MS), "%s",
	       partition_state(left.partition));
	read_stragglers(&left);
	ASSERT(WAIT_FOR(partition_is(left.partition, "free"), PROMPT_MS), "%s",
	       partition_state(left.partition));
}

ACTOR(leaves_pages_in_a_socket)
{
	char *memory = map_anon(STRAGGLERS * PAGE);
	struct iovec iov = { memory, STRAGGLERS * PAGE };
	int pipe_ends[2], ends[2];
	ssize_t moved;

	OK(pipe(pipe_ends));
	OK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends));
	fill(memory, STRAGGLERS * PAGE, 1);
	ASSERT_EQ(vmsplice(pipe_ends[1], &iov, 1, 0), STRAGGLERS * PAGE);
	moved = splice(pipe_ends[0], NULL, ends[0], NULL, STRAGGLERS * PAGE, SPLICE_F_NONBLOCK);
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
	if (WAIT_FOR(partition_is(actor.partition, "free"), PROMPT_MS))
		skip("this kernel copies what is spliced into a unix socket");
	assert_straggling(actor.partition, close_fd, &end);
}

/* The ring is its parent's; the pages are its own. */
ACTOR(leaves_pages_in_a_ring)
{
	char *memory = map_anon(STRAGGLERS * PAGE);

	fill(memory, STRAGGLERS * PAGE, 1);
	uring_register_buffer(atoi(argv[0]), memory, STRAGGLERS * PAGE);
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

static void receive(void *receiver)
{
	receive_sent(*(int *)receiver);
}

/*
 * What is being sent when @sender ends arrives whole, and holds its partition until then, or until
 * nobody is there to receive it.
 */
static void assert_sending(const char *sender, void (*release)(void *receiver))
{
	struct actor actor;
	int receiver;

	require_partitions();
	require_host();
	actor = actor_start(ANY, sender, NULL);
	receiver = actor_receive_fd(&actor);
	actor_hear(&actor);
	actor_kill(&actor);
	assert_straggling(actor.partition, release, &receiver);
}

TEST(memory_that_is_being_sent)
{
	assert_sending("sends_memory", receive);
}

TEST(memory_that_is_being_sent_to_who_goes)
{
	assert_sending("sends_memory", close_fd);
}

TEST(memory_that_is_being_sent_through_a_pipe)
{
	assert_sending("sends_memory_through_a_pipe", receive);
}

TEST(a_file_that_is_being_sent)
{
	assert_sending("sends_a_file", receive);
}

TEST(another_partition_is_taken_while_one_has_stragglers)
{
	struct stragglers left;
	int last = 0;

	require_partitions();
	require_host();
	if (partitions() < 2)
		skip("there is no other partition");
	last = partitions() - 1;
	host_partitions(partitions(), 20000);
	/* The one a shrink would take first, whichever end that is, is not the only one. */
	left = leave_stragglers(last);
	ASSERT(WAIT_FOR(partition_is_held(last), PROMPT_MS), "%s", partition_state(last));
	host_partitions(last, 10000);
	ASSERT(partition_is_held(last), "%s", partition_state(last));
	ASSERT(!shrink_blocked()[0], "%s", shrink_blocked());
	close(left.pipe);
	ASSERT(WAIT_FOR(partition_is(last, "free"), PROMPT_MS), "%s", partition_state(last));
	host_partitions(partitions(), 20000);
}

TEST(stragglers_do_not_hold_back_a_waiter)
{
	struct stragglers left;
	struct actor next;

	require_partitions();
	left = leave_stragglers(0);
	ASSERT(WAIT_FOR(partition_is_held(left.partition), PROMPT_MS), "%s",
	       partition_state(left.partition));
	/* Any other one does. */
	if (partitions_in_state("free")) {
		next = start_instance(ANY, 16 * MIB);
		ASSERT(next.partition != left.partition, "%d", next.partition);
		actor_kill(&next);
	}
	close(left.pipe);
}

/*
 * Puts both ends of a socket pair and a pipe in flight on the socket pair, and exits. Not an actor:
 * closing an actor's own socket collects garbage.
 */
BODY(leaves_a_pipe_in_flight_on_itself)
{
	char *memory = map_anon(STRAGGLERS * PAGE), text = 0;
	struct iovec spliced = { memory, STRAGGLERS * PAGE }, byte = { &text, 1 };
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

	fill(memory, STRAGGLERS * PAGE, 1);
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
			/* Where there is only one, until the garbage before is collected. */
			OK(squeezy_assign(ANY, 10 * PROMPT_MS * slowness()));
			exec_body("leaves_a_pipe_in_flight_on_itself", NULL);
		}
		OK(waitpid(pid, &status, 0));
		ASSERT_EQ(status, 0);
	}
	ASSERT(WAIT_FOR(partitions_in_state("free") == unused, PROMPT_MS), "%d quarantined",
	       partitions_in_state("quarantined"));
}
