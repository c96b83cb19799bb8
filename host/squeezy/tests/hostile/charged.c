/* Attacks on what stock Linux does not charge, or has only once per machine. */
#define _GNU_SOURCE
#include "hostile.h"

#include <arpa/inet.h>
#include <asm/unistd.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

/* As many connections as a listener's backlog holds. */
#define BACKLOG 4096

/* The socket of an unaccepted connection is made in an interrupt; its data stays, closed or not. */
ATTACK(accept_queue)
{
	struct sockaddr_in own;
	int i, j, sender;

	while (tcp_listener(&own, BACKLOG) >= 0)
		for (i = 0; i < BACKLOG; i++) {
			sender = tcp_connection(&own);
			if (sender < 0)
				return;
			for (j = 0; j < 4; j++)
				send(sender, chunk, 48 << 10, MSG_DONTWAIT);
			close(sender);
		}
}

/* A splice moves uncharged pages, here fresh zero-filled ones, into a socket's queue. */
ATTACK(spliced_zeros)
{
	int zeros = open("/dev/zero", O_RDONLY), pipe[2], ends[2], size = MIB;

	if (zeros < 0 || pipe2(pipe, O_NONBLOCK))
		return;
	while (!socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends)) {
		setsockopt(ends[0], SOL_SOCKET, SO_SNDBUF, &size, sizeof(size));
		do
			splice(zeros, NULL, pipe[1], NULL, 64 << 10, SPLICE_F_NONBLOCK);
		while (splice(pipe[0], NULL, ends[0], NULL, 64 << 10, SPLICE_F_NONBLOCK) > 0);
	}
}

#define FRAGMENT (32 << 10)

/* Splices one byte of a fragment into the pipe and reads the rest; returns whether that worked. */
static int keep_one_byte(int sender, int receiver, int pipe)
{
	ssize_t kept, left, got;

	if (send(sender, chunk, FRAGMENT, 0) != FRAGMENT)
		return 0;
	kept = splice(receiver, NULL, pipe, NULL, 1, SPLICE_F_NONBLOCK);
	for (left = FRAGMENT - (kept > 0); left > 0; left -= got) {
		got = recv(receiver, chunk, left, 0);
		if (got <= 0)
			return 0;
	}
	return kept > 0;
}

static void one_process_of_fragments(void)
{
	int listener, sender, receiver, pipe[2], one = 1;
	struct sockaddr_in own;

	listener = tcp_listener(&own, 1);
	sender = tcp_connection(&own);
	receiver = accept(listener, NULL, NULL);
	if (sender < 0 || receiver < 0)
		return;
	setsockopt(sender, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	while (!pipe2(pipe, O_NONBLOCK) && keep_one_byte(sender, receiver, pipe[1]))
		while (keep_one_byte(sender, receiver, pipe[1]))
			;
}

/* TCP copies into fragments of 32 KiB, and one byte in a pipe keeps a whole fragment. */
ATTACK(fragments)
{
	in_many_processes(one_process_of_fragments);
}

/* An open overlay directory caches its listing; after a change there is another one. */
ATTACK(directory_lists)
{
	const char *change = "/hostile-change";
	char path[256];
	int i, fd;

	for (i = 0; i < 1000; i++) {
		snprintf(path, sizeof(path), "/hostile-%0230d", i);
		fd = open(path, O_CREAT | O_WRONLY, 0600);
		if (fd < 0)
			break;
		close(fd);
	}
	for (;;) {
		close(open(change, O_CREAT | O_WRONLY, 0600));
		unlink(change);
		fd = open("/", O_RDONLY | O_DIRECTORY);
		if (fd < 0)
			return;
		while (syscall(SYS_getdents64, fd, chunk, MIB) > 0)
			;
	}
}

/* Each packet to a closed port causes an error, which is queued in an interrupt. */
ATTACK(error_queues)
{
	struct sockaddr_in closed = { .sin_family = AF_INET, .sin_port = htons(9),
				      .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	int fd, i, one = 1, size = MIB;

	while ((fd = socket(AF_INET, SOCK_DGRAM, 0)) >= 0) {
		setsockopt(fd, IPPROTO_IP, IP_RECVERR, &one, sizeof(one));
		setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &size, sizeof(size));
		for (i = 0; i < 800; i++)
			sendto(fd, chunk, 500, MSG_DONTWAIT, (struct sockaddr *)&closed,
			       sizeof(closed));
	}
}

static void *block_with_control_data(void *unused)
{
	/* A header of level 0, which is ignored. */
	static struct cmsghdr control[131000 / sizeof(struct cmsghdr)] = {
		{ .cmsg_len = sizeof(control) },
	};
	struct iovec data = { chunk, 16 };
	struct msghdr message = {
		.msg_iov = &data, .msg_iovlen = 1,
		.msg_control = control, .msg_controllen = sizeof(control),
	};
	int ends[2], size = 1;

	if (socketpair(AF_UNIX, SOCK_DGRAM, 0, ends))
		return unused;
	setsockopt(ends[0], SOL_SOCKET, SO_SNDBUF, &size, sizeof(size));
	while (send(ends[0], chunk, 16, MSG_DONTWAIT) > 0)
		;
	sendmsg(ends[0], &message, 0);
	return unused;
}

/* The kernel holds a copy of the control data, at most 128 KiB, while a thread waits to send. */
ATTACK(control_data)
{
	in_many_threads(block_with_control_data);
}

static void *wait_for_many(void *unused)
{
	static struct futex_waitv waiters[128];
	static uint32_t word;
	int i;

	for (i = 0; i < 128; i++)
		waiters[i] = (struct futex_waitv){
			.uaddr = (uintptr_t)&word, .flags = FUTEX_32 | FUTEX_PRIVATE_FLAG,
		};
	syscall(__NR_futex_waitv, waiters, 128, 0, NULL, 0);
	return unused;
}

/* For a thread that waits for 128 futexes, the kernel allocates an entry each. */
ATTACK(futex_vectors)
{
	in_many_threads(wait_for_many);
}

static struct sockaddr_in nobody_accepts;

static void *send_a_byte(void *unused)
{
	int fd = tcp_connection(&nobody_accepts);

	if (fd >= 0) {
		send(fd, chunk, 1, 0);
		close(fd);
	}
	return wait_for_ever(unused);
}

/* A thread that has sent one byte over TCP keeps the rest of a 32 KiB fragment. */
ATTACK(task_fragments)
{
	if (tcp_listener(&nobody_accepts, BACKLOG) >= 0)
		in_many_threads(send_a_byte);
}

#define SOURCES 64

static struct sockaddr_in6 *ipv6(struct sockaddr_storage *storage, const char *text)
{
	struct sockaddr_in6 *address = (struct sockaddr_in6 *)storage;

	address->sin6_family = AF_INET6;
	inet_pton(AF_INET6, text, &address->sin6_addr);
	return address;
}

/* The interface, not the socket, has a list of groups, and of the sources of each. */
ATTACK(groups)
{
	static union {
		struct group_filter filter;
		char space[GROUP_FILTER_SIZE(SOURCES)];
	} wanted = { .filter = { .gf_interface = 1, .gf_numsrc = SOURCES } };
	struct group_req join = { .gr_interface = 1 };
	struct sockaddr_in6 *group = ipv6(&join.gr_group, "ff05::");
	uint32_t number = 0;
	int fd, i;

	for (i = 0; i < SOURCES; i++)
		ipv6(&wanted.filter.gf_slist[i], "fd00::")->sin6_addr.s6_addr[15] = i;
	while ((fd = socket(AF_INET6, SOCK_DGRAM, 0)) >= 0)
		/* As many as one socket takes. */
		for (i = 0; i < 115; i++, number++) {
			memcpy(&group->sin6_addr.s6_addr[12], &number, sizeof(number));
			wanted.filter.gf_group = join.gr_group;
			if (setsockopt(fd, IPPROTO_IPV6, MCAST_JOIN_GROUP, &join, sizeof(join)) ||
			    setsockopt(fd, IPPROTO_IPV6, MCAST_MSFILTER, &wanted, sizeof(wanted)))
				break;
		}
}

/*
 * The machine has 4,096 flow labels, which outlive their socket for a while. A socket is sure of a
 * share of them; if a new one gets none, none are left.
 */
ATTACK(flow_labels)
{
	/* As in linux/in6.h, which conflicts with musl's headers. */
	struct {
		struct in6_addr to;
		uint32_t label;
		uint8_t action, share;
		uint16_t flags, expires, linger;
		uint32_t padding;
	} request = {
		.to = IN6ADDR_LOOPBACK_INIT,
		.share = 1 /* exclusive */, .flags = 1 /* make it */, .expires = 150, .linger = 150,
	};
	int fd, labels;

	do {
		fd = socket(AF_INET6, SOCK_DGRAM, 0);
		labels = -1;
		do {
			/* Any label; the kernel has written here which one. */
			request.label = 0;
			labels++;
		} while (!setsockopt(fd, IPPROTO_IPV6, 32 /* IPV6_FLOWLABEL_MGR */, &request,
				     sizeof(request)));
	} while (labels);
}

/* All eventfds, timerfds and epolls of the machine share one inode, and so their locks. */
ATTACK(locks_of_all)
{
	struct flock lock = { .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_len = 1 };
	int fd = eventfd(0, 0);

	while (!fcntl(fd, F_SETLK, &lock))
		lock.l_start += 2;
}

static void one_process_that_locks(void)
{
	int fd = open("/large", O_RDONLY);
	struct rlimit most;
	size_t parts;

	if (fd < 0 || getrlimit(RLIMIT_MEMLOCK, &most))
		return;
	parts = lseek(fd, 0, SEEK_END) / most.rlim_cur;
	mmap(NULL, most.rlim_cur, PROT_READ, MAP_SHARED | MAP_LOCKED | MAP_POPULATE, fd,
	     getpid() % parts * most.rlim_cur);
}

/* Each process locks another part of a file in the image, which is in the shared partition. */
ATTACK(locked_image)
{
	in_many_processes(one_process_that_locks);
}
