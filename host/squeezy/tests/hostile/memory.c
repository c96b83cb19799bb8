/* Attacks on memory: that of its partition, and whatever the kernel has to have for it outside. */
#define _GNU_SOURCE
#include "hostile.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/msg.h>
#include <sys/sem.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#define PAGE 4096

/* What is written is not zero, so that nobody can take it for a hole. */
static void fill(int fd)
{
	memset(chunk, 0x5a, sizeof(chunk));
	while (write(fd, chunk, sizeof(chunk)) > 0)
		;
}

static void fill_directory(const char *directory)
{
	char path[64];
	int i, fd;

	for (i = 0;; i++) {
		snprintf(path, sizeof(path), "%s/hostile-%d-%d", directory, getpid(), i);
		fd = open(path, O_CREAT | O_WRONLY, 0600);
		if (fd < 0)
			return;
		fill(fd);
		close(fd);
		if (errno == ENOSPC)
			return;
	}
}

ATTACK(shm_files)
{
	fill_directory("/dev/shm");
}

ATTACK(tmp_files)
{
	fill_directory("/tmp");
}

ATTACK(root_files)
{
	fill_directory("/");
}

static void many_inodes(const char *directory)
{
	char path[128];
	int i, fd;

	for (i = 0;; i++) {
		snprintf(path, sizeof(path), "%s/hostile-%d-%0100d", directory, getpid(), i);
		fd = open(path, O_CREAT | O_WRONLY, 0600);
		if (fd < 0)
			return;
		close(fd);
	}
}

ATTACK(tmp_inodes)
{
	many_inodes("/tmp");
}

ATTACK(root_inodes)
{
	many_inodes("/");
}

ATTACK(dev_inodes)
{
	many_inodes("/dev");
}

/* A page far from the next takes a path of its own in the index of the file. */
ATTACK(sparse_file)
{
	int fd = open("/tmp/hostile-sparse", O_CREAT | O_RDWR, 0600);
	off_t at;

	for (at = 0; pwrite(fd, "x", 1, at) == 1; at += (off_t)PAGE << 12)
		;
}

ATTACK(attributes)
{
	char path[64], name[64];
	int i, j, fd;

	for (i = 0;; i++) {
		snprintf(path, sizeof(path), "/tmp/hostile-attributes-%d", i);
		fd = open(path, O_CREAT | O_WRONLY, 0600);
		if (fd < 0)
			return;
		for (j = 0; j < 1000; j++) {
			snprintf(name, sizeof(name), "user.%d", j);
			if (fsetxattr(fd, name, chunk, 32 << 10, 0))
				break;
		}
		close(fd);
	}
}

/* Names that are not there are remembered, too. */
ATTACK(names)
{
	struct stat status;
	char path[256];
	unsigned long i;

	for (i = 0;; i++) {
		snprintf(path, sizeof(path), "/tmp/%0200lu", i);
		stat(path, &status);
	}
}

ATTACK(memfds)
{
	for (;;) {
		int fd = memfd_create("hostile", 0);

		if (fd < 0)
			return;
		fill(fd);
	}
}

static void map_and_fill(int flags)
{
	for (;;) {
		char *memory = mmap(NULL, 16 * MIB, PROT_READ | PROT_WRITE,
				    flags | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

		if (memory == MAP_FAILED)
			return;
		memset(memory, 0x5a, 16 * MIB);
	}
}

ATTACK(private_memory)
{
	map_and_fill(MAP_PRIVATE);
}

ATTACK(shared_memory)
{
	map_and_fill(MAP_SHARED);
}

ATTACK(sysv_segments)
{
	for (;;) {
		int id = shmget(IPC_PRIVATE, 16 * MIB, 0600);
		char *memory = id < 0 ? (void *)-1 : shmat(id, NULL, 0);

		if (memory == (void *)-1)
			return;
		memset(memory, 0x5a, 16 * MIB);
	}
}

/* Memory that is locked, lazily freed and taken again, over and over. */
ATTACK(lazily_freed)
{
	const size_t bytes = 64 * MIB;
	char *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (memory == MAP_FAILED)
		return;
	for (;;) {
		memset(memory, 0x5a, bytes);
		if (madvise(memory, bytes, MADV_FREE))
			return;
	}
}

/* Reads of memory that nobody has written take no page, but a page of tables for each 2 MiB. */
ATTACK(page_tables)
{
	const size_t bytes = 1ul << 40;

	for (;;) {
		volatile char *memory = mmap(NULL, bytes, PROT_READ,
					     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
		size_t at;

		if (memory == MAP_FAILED)
			return;
		for (at = 0; at < bytes; at += 2 * MIB)
			(void)memory[at];
	}
}

static void one_process_of_areas(void)
{
	int i;

	/* Neighbours that differ are not merged: an area for each page. */
	for (i = 0; i < 65000; i++)
		if (mmap(NULL, PAGE, i % 2 ? PROT_READ : PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED)
			return;
}

ATTACK(areas)
{
	in_many_processes(one_process_of_areas);
}

ATTACK(fork_bomb)
{
	for (;;)
		if (fork() < 0)
			usleep(1000);
}

ATTACK(threads)
{
	in_many_threads(wait_for_ever);
}

static void execute_with_arguments(void)
{
	static char text[100 << 10];
	char *arguments[18] = { "hostile", "wait" };
	int i;

	memset(text, 'x', sizeof(text) - 1);
	for (i = 2; i < 17; i++)
		arguments[i] = text;
	execv("/hostile", arguments);
}

ATTACK(arguments)
{
	in_many_processes(execute_with_arguments);
}

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

/* A file of the image that is larger than what everybody shares. */
ATTACK(file_cache)
{
	int fd = open("/large", O_RDONLY);

	if (fd < 0)
		return;
	for (;;)
		while (read(fd, chunk, sizeof(chunk)) > 0 || lseek(fd, 0, SEEK_SET))
			;
}

/*
 * What all others are compared with: it only takes its share of the processors, and of each of them,
 * as the others do with their many processes.
 */
ATTACK(spin)
{
	long others = sysconf(_SC_NPROCESSORS_ONLN) - 1;

	while (others-- > 0 && fork())
		;
	for (;;)
		;
}
