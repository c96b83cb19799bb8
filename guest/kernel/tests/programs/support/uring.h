/* SPDX-License-Identifier: GPL-2.0 */
/* The least of io_uring: a ring, memory registered (pinned for long) with it, and a request. */
#ifndef SQUEEZY_TEST_URING_H
#define SQUEEZY_TEST_URING_H

#include "harness.h"

#include <linux/io_uring.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

static inline int uring_create(void)
{
	struct io_uring_params params = { 0 };
	struct rlimit unlimited = { RLIM_INFINITY, RLIM_INFINITY };
	int ring = syscall(SYS_io_uring_setup, 4, &params);

	if (ring < 0)
		skip("no io_uring: %m");
	setrlimit(RLIMIT_MEMLOCK, &unlimited);
	return ring;
}

static inline void uring_register_buffer(int ring, void *memory, size_t bytes)
{
	struct iovec buffer = { memory, bytes };

	OK(syscall(SYS_io_uring_register, ring, IORING_REGISTER_BUFFERS, &buffer, 1));
}

/* A ring with one request that has been submitted: to write memory to a file. */
static inline int uring_write(int fd, const void *memory, size_t bytes)
{
	struct io_uring_params params = { 0 };
	int ring = syscall(SYS_io_uring_setup, 1, &params);
	struct io_uring_sqe *request;
	char *queue;

	if (ring < 0)
		skip("no io_uring: %m");
	queue = mmap(NULL, params.sq_off.array + sizeof(unsigned int), PROT_READ | PROT_WRITE,
		     MAP_SHARED, ring, IORING_OFF_SQ_RING);
	request = mmap(NULL, sizeof(*request), PROT_READ | PROT_WRITE, MAP_SHARED, ring,
		       IORING_OFF_SQES);
	ASSERT(queue != MAP_FAILED && request != MAP_FAILED, "mmap: %m");
	*request = (struct io_uring_sqe){ .opcode = IORING_OP_WRITE, .fd = fd,
					  .addr = (uintptr_t)memory, .len = bytes,
					  .off = (u64)-1 };
	*(unsigned int *)(queue + params.sq_off.array) = 0;
	__atomic_store_n((unsigned int *)(queue + params.sq_off.tail), 1, __ATOMIC_RELEASE);
	ASSERT_EQ(syscall(SYS_io_uring_enter, ring, 1, 0, 0, NULL, 0), 1);
	return ring;
}

#endif
