/*
 * Attacks on what the kernel has for open files and messages: watches, descriptors, connections, queues,
 * locks, names.
 */
#define _GNU_SOURCE
#include "hostile.h"

#include <fcntl.h>
#include <linux/filter.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ipc.h>
#include <sys/msg.h>
#include <sys/sem.h>
#include <sys/socket.h>
#include <unistd.h>

static void one_process_of_pipes(void)
{
	int ends[2];

	while (!pipe2(ends, O_NONBLOCK)) {
		fcntl(ends[1], F_SETPIPE_SZ, MIB);
		fill(ends[1]);
	}
}

ATTACK(pipes)
{
	in_many_processes(one_process_of_pipes);
}

static void one_process_of_sockets(void)
{
	int ends[2], size = 16 * MIB;

	while (!socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends)) {
		setsockopt(ends[0], SOL_SOCKET, SO_SNDBUF, &size, sizeof(size));
		fill(ends[0]);
	}
}

ATTACK(sockets)
{
	in_many_processes(one_process_of_sockets);
}

static void one_process_of_netlink(void)
{
	struct {
		struct nlmsghdr header;
		struct ifaddrmsg what;
		char padding[16 << 10];
	} request = {
		.header = { .nlmsg_len = sizeof(request), .nlmsg_type = RTM_GETADDR,
			    .nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP },
		.what = { .ifa_family = AF_INET },
	};
	int fd, i, size = MIB;

	while ((fd = socket(AF_NETLINK, SOCK_RAW | SOCK_NONBLOCK, NETLINK_ROUTE)) >= 0) {
		setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &size, sizeof(size));
		for (i = 0; i < 32; i++)
			send(fd, &request, sizeof(request), 0);
	}
}

/* Dumps of addresses that are never read. All but the first are refused, with a copy of the request. */
ATTACK(netlink)
{
	in_many_processes(one_process_of_netlink);
}

static void one_process_of_filters(void)
{
	static struct sock_filter code[4096];
	const struct sock_fprog program = { 4096, code };
	int fd, i;

	for (i = 0; i < 4096; i++)
		code[i] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, 0);
	while ((fd = socket(AF_UNIX, SOCK_DGRAM, 0)) >= 0)
		if (setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof(program)))
			return;
}

ATTACK(filters)
{
	in_many_processes(one_process_of_filters);
}

ATTACK(messages)
{
	struct {
		long type;
		char text[8192];
	} message = { .type = 1 };
	int queue;

	for (;;) {
		queue = msgget(IPC_PRIVATE, 0600);
		if (queue < 0)
			return;
		while (!msgsnd(queue, &message, sizeof(message.text), IPC_NOWAIT))
			;
	}
}

ATTACK(semaphores)
{
	while (semget(IPC_PRIVATE, 32000, 0600) >= 0)
		;
}

/* Who has many locks on a file waits long for one more; ranges that do not touch are not merged. */
#define LOCKS_ON_A_FILE 1000

ATTACK(locks)
{
	struct flock lock = { .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_len = 1 };
	char path[64];
	int file, fd;

	for (file = 0;; file++) {
		snprintf(path, sizeof(path), "/tmp/hostile-locks-%d-%d", getpid(), file);
		fd = open(path, O_CREAT | O_RDWR, 0600);
		if (fd < 0)
			return;
		for (lock.l_start = 0; lock.l_start < 2 * LOCKS_ON_A_FILE; lock.l_start += 2)
			if (fcntl(fd, F_SETLK, &lock))
				return;
	}
}

/* The kernel has a place in a queue for each time that a descriptor is polled. */
#define POLLED 65536

static void poll_many_times(void)
{
	static struct pollfd polled[POLLED];
	int ends[2], i;

	if (pipe(ends))
		return;
	for (i = 0; i < POLLED; i++)
		polled[i] = (struct pollfd){ .fd = ends[0], .events = POLLIN };
	poll(polled, POLLED, -1);
}

ATTACK(polls)
{
	in_many_processes(poll_many_times);
}

#define FILES 400

static void one_process_of_watches(void)
{
	struct epoll_event event = { .events = EPOLLIN };
	int files[FILES], i, epoll;

	for (i = 0; i < FILES; i++)
		files[i] = eventfd(0, EFD_NONBLOCK);
	while ((epoll = epoll_create1(0)) >= 0)
		for (i = 0; i < FILES; i++)
			if (epoll_ctl(epoll, EPOLL_CTL_ADD, files[i], &event))
				return;
}

ATTACK(epoll_watches)
{
	in_many_processes(one_process_of_watches);
}

/* Sends descriptors to itself that it never takes. */
ATTACK(descriptors_in_flight)
{
	char control[CMSG_SPACE(200 * sizeof(int))] = { 0 };
	struct iovec byte = { chunk, 1 };
	struct msghdr message = {
		.msg_iov = &byte, .msg_iovlen = 1,
		.msg_control = control, .msg_controllen = sizeof(control),
	};
	struct cmsghdr *header = CMSG_FIRSTHDR(&message);
	int ends[2], i;

	header->cmsg_level = SOL_SOCKET;
	header->cmsg_type = SCM_RIGHTS;
	header->cmsg_len = CMSG_LEN(200 * sizeof(int));
	while (!socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends)) {
		for (i = 0; i < 200; i++)
			memcpy(CMSG_DATA(header) + i * sizeof(int), &ends[1], sizeof(int));
		if (sendmsg(ends[0], &message, 0) < 0)
			return;
		/* What is in flight holds itself, so that only the kernel's garbage collector ends it. */
		close(ends[0]);
		close(ends[1]);
	}
}

/* A connection to itself of which nothing is read; its end that has sent as much as it can. */
static int unread_connection(void)
{
	struct sockaddr_in own;
	int listener = tcp_listener(&own, 1), sender, size = 16 * MIB;

	if (listener < 0)
		return -1;
	sender = tcp_connection(&own);
	if (sender < 0 || accept(listener, NULL, NULL) < 0)
		return -1;
	setsockopt(sender, SOL_SOCKET, SO_SNDBUF, &size, sizeof(size));
	close(listener);
	while (send(sender, chunk, 64 << 10, MSG_DONTWAIT) > 0)
		;
	return sender;
}

static void one_process_of_connections(void)
{
	while (unread_connection() >= 0)
		;
}

ATTACK(tcp_buffers)
{
	in_many_processes(one_process_of_connections);
}

static void one_process_of_orphans(void)
{
	int sender;

	/* What it has sent is nobody's, and stays until somebody reads it. */
	while ((sender = unread_connection()) >= 0)
		close(sender);
}

ATTACK(orphans)
{
	in_many_processes(one_process_of_orphans);
}

/* Names that are not there, which the kernel remembers as such. */
ATTACK(negative_dentries)
{
	char path[256];
	unsigned int i;

	for (i = 0;; i++) {
		snprintf(path, sizeof(path), "/absent-%0200u", i);
		if (!access(path, F_OK))
			return;
	}
}
