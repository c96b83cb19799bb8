/* Attacks on what the kernel has for open files: watches, descriptors, connections, names. */
#define _GNU_SOURCE
#include "hostile.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

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
