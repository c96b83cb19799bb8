// SPDX-License-Identifier: GPL-2.0
/*
 * Instances that cannot be doomed because others have pages of theirs in hand.
 */
#define _GNU_SOURCE
#include "actor.h"
#include "frozen.h"
#include "harness.h"
#include "memfile.h"
#include "memory.h"
#include "sent.h"
#include "squeezy.h"
#include "uring.h"

#include <fcntl.h>
#include <linux/aio_abi.h>
#include <linux/fuse.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

/* Starts @name, freezes it, and expects this @reason; then @release must make it possible. */
static void assert_held(const char *name, const char *reason, void (*release)(int fd))
{
	struct actor actor;
	int fd;

	require_partitions();
	actor = actor_start(ANY, name, NULL);
	contain(actor.pid);
	fd = actor_receive_fd(&actor);
	actor_hear(&actor);
	freeze();
	assert_not_doomed(actor.partition, reason);
	if (release) {
		release(fd);
		ASSERT(WAIT_FOR(write_doom(actor.partition, "1"), PROMPT_MS), "%m");
	}
	close(fd);
	end_contained(&actor);
}

static void drain_pipe(int fd)
{
	static char text[PAGE];

	OK(fcntl(fd, F_SETFL, O_NONBLOCK));
	while (read(fd, text, sizeof(text)) > 0)
		;
}

ACTOR(has_pages_in_a_pipe)
{
	char *memory = map_anon(4 * PAGE);
	struct iovec iov = { memory, 4 * PAGE };
	int ends[2];

	OK(pipe(ends));
	fill(memory, 4 * PAGE, 1);
	ASSERT_EQ(vmsplice(ends[1], &iov, 1, 0), 4 * PAGE);
	send_fd(ends[0]);
	tell("ready");
	hear();
}

TEST(pages_in_a_pipe_are_ebusy)
{
	assert_held("has_pages_in_a_pipe", "a page is used by others", drain_pipe);
}

/* Those of a file do not need to be mapped. */
ACTOR(has_a_file_in_a_pipe)
{
	int file = OK(memfd_create("spliced", 0)), ends[2];
	loff_t offset = 0;

	ASSERT_EQ(write_zeroes(file, MIB), MIB);
	OK(pipe(ends));
	ASSERT_EQ(splice(file, &offset, ends[1], NULL, 4 * PAGE, 0), 4 * PAGE);
	send_fd(ends[0]);
	tell("ready");
	hear();
}

TEST(pages_of_a_file_in_a_pipe_are_ebusy)
{
	assert_held("has_a_file_in_a_pipe", "a page is used by others", drain_pipe);
}

/* Somebody else would get zeros of what has not arrived yet. */
TEST(memory_that_is_being_sent_is_ebusy)
{
	assert_held("sends_memory", "a page is used by others", receive_sent);
}

TEST(memory_that_is_being_sent_through_a_pipe_is_ebusy)
{
	assert_held("sends_memory_through_a_pipe", "a page is used by others", receive_sent);
}

TEST(a_file_that_is_being_sent_is_ebusy)
{
	assert_held("sends_a_file", "a page is used by others", receive_sent);
}

/* A ring cannot be sent: it is the test's. */
ACTOR(has_a_registered_buffer)
{
	char *memory = map_anon(MIB);

	fill(memory, MIB, 1);
	uring_register_buffer(atoi(argv[0]), memory, MIB);
	tell("registered");
	hear();
}

TEST(buffers_registered_with_io_uring_are_ebusy)
{
	struct actor actor;
	char number[16];
	int ring;

	require_partitions();
	ring = uring_create();
	OK(fcntl(ring, F_SETFD, 0));
	snprintf(number, sizeof(number), "%d", ring);
	actor = actor_start(ANY, "has_a_registered_buffer", number, NULL);
	contain(actor.pid);
	actor_hear(&actor);
	freeze();
	assert_not_doomed(actor.partition, "a page is used by others");
	OK(syscall(SYS_io_uring_register, ring, IORING_UNREGISTER_BUFFERS, NULL, 0));
	ASSERT(WAIT_FOR(write_doom(actor.partition, "1"), PROMPT_MS), "%m");
	end_contained(&actor);
	close(ring);
}

/* A write to a pipe that is full: io_uring has the address of the memory and waits. */
ACTOR(has_a_request_in_a_ring)
{
	char *memory = map_anon(PAGE);
	int ends[2];

	OK(pipe2(ends, O_NONBLOCK));
	while (write(ends[1], memory, PAGE) > 0)
		;
	OK(fcntl(ends[1], F_SETFL, 0));
	uring_write(ends[1], memory, PAGE);
	send_fd(ends[0]);
	tell("ready");
	hear();
}

TEST(a_request_that_io_uring_has_is_ebusy)
{
	assert_held("has_a_request_in_a_ring", "requests in an io_uring", NULL);
}

/* Rings that have nothing to do are no obstacle. */
ACTOR(has_used_a_ring)
{
	char *memory = map_anon(PAGE);
	int ends[2];

	OK(pipe(ends));
	uring_write(ends[1], memory, PAGE);
	ASSERT_EQ(read(ends[0], memory, PAGE), PAGE);
	tell("ready");
	hear();
}

TEST(an_idle_ring_is_doomed)
{
	struct actor actor;

	require_partitions();
	actor = actor_start(ANY, "has_used_a_ring", NULL);
	contain(actor.pid);
	actor_hear(&actor);
	freeze();
	doom(actor.partition);
	end_contained(&actor);
}

/* For direct I/O that stays in flight: a FUSE file whose server does not answer. */
#define FUSE_FILE "/tmp/slow"

static void reply(int fuse, u64 unique, const void *body, size_t bytes)
{
	struct fuse_out_header header = { .len = sizeof(header) + bytes, .unique = unique };
	struct iovec parts[] = { { &header, sizeof(header) }, { (void *)body, bytes } };

	ASSERT_EQ(writev(fuse, parts, 2), header.len);
}

/* Answers everything up to the first read. */
static void serve_until_read(int fuse)
{
	static char buffer[FUSE_MIN_READ_BUFFER + MIB];
	struct fuse_in_header *in = (void *)buffer;
	struct fuse_init_out init = { .major = FUSE_KERNEL_VERSION,
				      .minor = FUSE_KERNEL_MINOR_VERSION,
				      .flags = FUSE_ASYNC_READ | FUSE_ASYNC_DIO,
				      .max_background = 16, .max_write = MIB };
	struct fuse_attr_out attributes = { .attr = { .ino = 1, .size = MIB, .nlink = 1,
						      .mode = S_IFREG | 0600 } };
	struct fuse_open_out opened = { .open_flags = FOPEN_DIRECT_IO };

	for (;;) {
		OK(read(fuse, buffer, sizeof(buffer)));
		switch (in->opcode) {
		case FUSE_INIT:
			reply(fuse, in->unique, &init, sizeof(init));
			break;
		case FUSE_GETATTR:
			reply(fuse, in->unique, &attributes, sizeof(attributes));
			break;
		case FUSE_OPEN:
			reply(fuse, in->unique, &opened, sizeof(opened));
			break;
		case FUSE_READ:
			return;
		default:
			FAIL("request %u of FUSE", in->opcode);
		}
	}
}

ACTOR(reads_without_a_cache)
{
	char *memory = map_anon(MIB);
	struct iocb request = { .aio_lio_opcode = IOCB_CMD_PREAD, .aio_buf = (uintptr_t)memory,
				.aio_nbytes = 64 * KIB }, *requests = &request;
	aio_context_t context = 0;
	struct stat status;

	fill(memory, MIB, 1);
	request.aio_fildes = OK(open(FUSE_FILE, O_RDONLY | O_DIRECT));
	/* FUSE reads no further than it knows the file to be. */
	OK(fstat(request.aio_fildes, &status));
	OK(syscall(SYS_io_setup, 1, &context));
	ASSERT_EQ(syscall(SYS_io_submit, context, 1, &requests), 1);
	tell("reading");
	hear();
}

TEST(direct_io_in_flight_is_ebusy)
{
	int fuse = open("/dev/fuse", O_RDWR | O_CLOEXEC);
	struct actor actor;
	char options[64];

	require_partitions();
	if (fuse < 0)
		skip("no FUSE: %m");
	mkdir("/tmp", 01777);
	close(OK(open(FUSE_FILE, O_CREAT | O_RDWR, 0600)));
	snprintf(options, sizeof(options), "fd=%d,rootmode=100000,user_id=0,group_id=0", fuse);
	OK(mount("slow", FUSE_FILE, "fuse", 0, options));
	actor = actor_start(ANY, "reads_without_a_cache", NULL);
	contain(actor.pid);
	serve_until_read(fuse);
	actor_hear(&actor);
	freeze();
	assert_not_doomed(actor.partition, "a page is used by others");
	/* The request fails. */
	close(fuse);
	ASSERT(WAIT_FOR(write_doom(actor.partition, "1"), PROMPT_MS), "%m");
	end_contained(&actor);
	OK(umount2(FUSE_FILE, MNT_DETACH));
	unlink(FUSE_FILE);
}
