// SPDX-License-Identifier: GPL-2.0
/* What the kernel has for a process in a partition counts against the limit of its cgroup. */
#define _GNU_SOURCE
#include "actor.h"
#include "harness.h"
#include "memory.h"
#include "squeezy.h"
#include "system.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define LIMIT_BYTES (8 * MIB)

/* Starts the actor beneath the limit, which it comes to. */
static void assert_stopped(const char *name)
{
	struct actor actor;

	require_partitions();
	make_cgroup(LIMIT_BYTES);
	actor = actor_start(ANY, name, NULL);
	actor_join_killed(&actor);
	ASSERT(read_field(CGROUP "/memory.events", "oom_kill") > 0, "not by its cgroup");
	remove_cgroup();
}

/* Of a lock 200 bytes; ranges that do not touch are not merged. */
ACTOR(has_locks)
{
	struct flock lock = { .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_len = 1 };
	int file;

	enter_cgroup();
	for (file = 0; file < 100; file++) {
		int fd = OK(open("/tmp", O_TMPFILE | O_RDWR, 0600));

		for (lock.l_start = 0; lock.l_start < 2000; lock.l_start += 2)
			OK(fcntl(fd, F_SETLK, &lock));
	}
	FAIL("has 100,000 locks");
}

TEST(locks)
{
	assert_stopped("has_locks");
}

#define POLLED 32768

/* A place in a queue of 64 bytes for each time that one descriptor is polled, by each process. */
ACTOR(polls)
{
	const struct rlimit files = { POLLED, POLLED };
	struct pollfd *polled = (void *)map_anon(POLLED * sizeof(*polled));
	int ends[2], i;

	OK(pipe(ends));
	OK(setrlimit(RLIMIT_NOFILE, &files));
	for (i = 0; i < POLLED; i++)
		polled[i] = (struct pollfd){ .fd = ends[0], .events = POLLIN };
	enter_cgroup();
	/* For as long as it takes until all of them do. */
	for (i = 0; i < 16; i++) {
		if (fork_child())
			continue;
		OK(poll(polled, POLLED, 10 * PROMPT_MS * slowness()));
		_exit(0);
	}
	for (; i; i--) {
		int status;

		OK(wait(&status));
		if (WIFSIGNALED(status))
			raise(WTERMSIG(status));
	}
	FAIL("polls %d descriptors in 16 processes", POLLED);
}

TEST(polls_of_many_descriptors)
{
	assert_stopped("polls");
}

static void enter_network(void)
{
	OK(unshare(CLONE_NEWNET));
	bring_loopback_up();
}

#define CONNECTIONS 4000

/* Interrupts make them, while the listener's process does something else. */
ACTOR(accepts_no_connections)
{
	struct sockaddr_in local = { .sin_family = AF_INET };
	socklen_t length = sizeof(local);
	int listener, i;

	local.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	enter_network();
	enter_cgroup();
	for (listener = 0; listener < 4; listener++) {
		int fd = OK(socket(AF_INET, SOCK_STREAM, 0));

		local.sin_port = 0;
		OK(bind(fd, (struct sockaddr *)&local, length));
		OK(listen(fd, CONNECTIONS));
		OK(getsockname(fd, (struct sockaddr *)&local, &length));
		for (i = 0; i < CONNECTIONS; i++) {
			fd = OK(socket(AF_INET, SOCK_STREAM, 0));
			OK(connect(fd, (struct sockaddr *)&local, length));
			close(fd);
		}
	}
	FAIL("has %d connections", listener * CONNECTIONS);
}

TEST(connections_that_nobody_accepts)
{
	assert_stopped("accepts_no_connections");
}

/* Nobody listens there, which an ICMP message says. */
ACTOR(reads_no_errors)
{
	struct sockaddr_in nobody = { .sin_family = AF_INET, .sin_port = htons(9) };
	int on = 1, sockets, i;
	char text[500] = "";

	nobody.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	enter_network();
	enter_cgroup();
	for (sockets = 0; sockets < 500; sockets++) {
		int fd = OK(socket(AF_INET, SOCK_DGRAM, 0));

		OK(setsockopt(fd, IPPROTO_IP, IP_RECVERR, &on, sizeof(on)));
		for (i = 0; i < 200; i++)
			sendto(fd, text, sizeof(text), MSG_DONTWAIT, (struct sockaddr *)&nobody,
			       sizeof(nobody));
	}
	FAIL("has the errors of %d sockets", sockets);
}

TEST(errors_that_nobody_reads)
{
	assert_stopped("reads_no_errors");
}
