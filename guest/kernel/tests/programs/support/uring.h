/* SPDX-License-Identifier: GPL-2.0 */
/* The least of io_uring: a ring, and memory registered (pinned for long) as its buffer. */
#ifndef SQUEEZY_TEST_URING_H
#define SQUEEZY_TEST_URING_H

#include "harness.h"

#include <linux/io_uring.h>
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

#endif
