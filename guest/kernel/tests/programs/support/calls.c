// SPDX-License-Identifier: GPL-2.0
/* See calls.h. */
#define _GNU_SOURCE
#include "calls.h"
#include "system.h"

#include <linux/perf_event.h>
#include <sys/syscall.h>
#include <unistd.h>

static int open_count(pid_t pid, int processor, const char *function)
{
	struct perf_event_attr attr = {
		.type = read_number("/sys/bus/event_source/devices/kprobe/type"),
		.size = sizeof(attr),
		.kprobe_func = (uintptr_t)function,
	};
	int count = syscall(SYS_perf_event_open, &attr, pid, processor, -1, PERF_FLAG_FD_CLOEXEC);

	ASSERT(count >= 0, "a kprobe of %s: %m", function);
	return count;
}

int count_calls(pid_t pid, const char *function)
{
	return open_count(pid, -1, function);
}

int count_calls_on(int processor, const char *function)
{
	return open_count(-1, processor, function);
}

u64 counted_calls(int count)
{
	u64 calls;

	ASSERT_EQ(read(count, &calls, sizeof(calls)), sizeof(calls));
	return calls;
}
