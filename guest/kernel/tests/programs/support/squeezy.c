// SPDX-License-Identifier: GPL-2.0
/* See squeezy.h. */
#define _GNU_SOURCE
#include "squeezy.h"
#include "memory.h"
#include "system.h"

#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#define SYSFS "/sys/kernel/mm/squeezy/"

long squeezy_assign(int partition, int wait_ms)
{
	return prctl(PR_SQUEEZY, PR_SQUEEZY_ASSIGN, (long)partition, (long)wait_ms, 0);
}

long squeezy_cancel(void)
{
	return prctl(PR_SQUEEZY, PR_SQUEEZY_CANCEL, 0, 0, 0);
}

long squeezy_get(pid_t pid)
{
	return prctl(PR_SQUEEZY, PR_SQUEEZY_GET, (long)pid, 0, 0);
}

long squeezy_join(pid_t pid)
{
	return prctl(PR_SQUEEZY, PR_SQUEEZY_JOIN, (long)pid, 0, 0);
}

int own_partition(void)
{
	return OK(squeezy_get(0));
}

bool have_partitions(void)
{
	return !access(SYSFS "partitions", R_OK);
}

void require_partitions(void)
{
	if (!have_partitions())
		skip("this kernel has no partitions: no " SYSFS);
}

int partitions(void)
{
	return read_number(SYSFS "partitions");
}

u64 partition_bytes(void)
{
	return read_number(SYSFS "partition_size");
}

u64 percent(unsigned int n)
{
	return partition_bytes() / 100 * n / HUGE_PAGE * HUGE_PAGE;
}

u64 shared_bytes(void)
{
	return read_number(SYSFS "shared_size");
}

u64 counter(const char *name)
{
	char path[128];

	snprintf(path, sizeof(path), SYSFS "counters/%s", name);
	return read_number(path);
}

static void partition_file(int partition, const char *name, char *text, size_t size)
{
	char path[128];

	snprintf(path, sizeof(path), SYSFS "partition%d/%s", partition, name);
	ASSERT(read_text(path, text, size), "%s: %m", path);
}

static u64 partition_number(int partition, const char *name)
{
	char text[64];

	partition_file(partition, name, text, sizeof(text));
	return strtoull(text, NULL, 0);
}

const char *partition_state(int partition)
{
	static char text[64];

	partition_file(partition, "state", text, sizeof(text));
	return text;
}

bool partition_is(int partition, const char *state)
{
	return !strcmp(partition_state(partition), state);
}

bool partition_is_held(int partition)
{
	return partition_is(partition, "draining") || partition_is(partition, "quarantined");
}

int partition_users(int partition)
{
	return partition_number(partition, "users");
}

u64 partition_free(int partition)
{
	return partition_number(partition, "free_bytes");
}

u64 fill_until(char *memory, u64 left)
{
	int partition = own_partition();
	u64 at = 0, end, free;

	while (at < partition_bytes() && (free = partition_free(partition)) > left) {
		/*
		 * Half of what is to go, as page tables need some: not to look after each page,
		 * which takes ten minutes on the debug kernel.
		 */
		end = at + PAGE + (free - left) / 2 / PAGE * PAGE;
		for (; at < end && at < partition_bytes(); at += PAGE)
			memory[at] = 1;
	}
	return at;
}

u64 partition_managed(int partition)
{
	return partition_number(partition, "managed_bytes");
}

u64 partition_start(int partition)
{
	return partition_number(partition, "start_address");
}

int partitions_in_state(const char *state)
{
	int count = 0, n = partitions(), i;

	for (i = 0; i < n; i++)
		count += partition_is(i, state);
	return count;
}

const char *shrink_blocked(void)
{
	static char text[256];

	ASSERT(read_text(SYSFS "shrink_blocked", text, sizeof(text)), "%m");
	return text;
}

static bool settled(void)
{
	int n = partitions(), i;

	for (i = 0; i < n; i++)
		if (partition_users(i) || partition_is(i, "assigned") ||
		    partition_is(i, "draining") || partition_is(i, "quarantined"))
			return false;
	return true;
}

bool settle(void)
{
	int n, i;

	if (!have_partitions() || WAIT_FOR(settled(), 10000))
		return true;
	n = partitions();
	for (i = 0; i < n; i++)
		if (!partition_is(i, "free") && !partition_is(i, "unplugged") &&
		    !partition_is(i, "absent"))
			note("partition %d is %s, users %d, %llu of %llu bytes free",
			     i, partition_state(i), partition_users(i), partition_free(i),
			     partition_managed(i));
	return false;
}
