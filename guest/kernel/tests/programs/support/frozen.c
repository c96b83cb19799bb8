// SPDX-License-Identifier: GPL-2.0
/* See frozen.h. */
#define _GNU_SOURCE
#include "frozen.h"
#include "instance.h"
#include "memory.h"
#include "system.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

void contain(pid_t pid)
{
	char text[16];

	make_cgroup(NO_LIMIT);
	snprintf(text, sizeof(text), "%d", pid);
	ASSERT(write_text(CGROUP "/cgroup.procs", text), "%m");
}

void freeze(void)
{
	ASSERT(write_text(CGROUP "/cgroup.freeze", "1"), "%m");
	ASSERT(WAIT_FOR(read_field(CGROUP "/cgroup.events", "frozen"), PROMPT_MS), "not frozen");
}

void thaw(void)
{
	ASSERT(write_text(CGROUP "/cgroup.freeze", "0"), "%m");
}

static const char *doom_path(int partition)
{
	static char path[64];

	snprintf(path, sizeof(path), "/sys/kernel/mm/squeezy/partition%d/doom", partition);
	return path;
}

bool write_doom(int partition, const char *text)
{
	return write_text(doom_path(partition), text);
}

bool is_doomed(int partition)
{
	return read_number(doom_path(partition));
}

/* Why the kernel has refused. */
static const char *refusal(int mark)
{
	const char *record = kmsg_find(mark, "is not doomed");

	return record ? strstr(record, "is not doomed") : "no reason in the log";
}

void doom(int partition)
{
	int mark = kmsg_mark();

	ASSERT(write_doom(partition, "1"), "partition %d: %m: %s", partition, refusal(mark));
	ASSERT(is_doomed(partition), "partition %d is not", partition);
	close(mark);
}

void undoom(int partition)
{
	ASSERT(write_doom(partition, "0"), "partition %d: %m", partition);
	ASSERT(!is_doomed(partition), "partition %d is", partition);
}

void assert_not_doomed(int partition, const char *reason)
{
	int mark = kmsg_mark();

	ASSERT(!write_doom(partition, "1"), "doomed, although %s", reason);
	ASSERT(errno == EBUSY, "%m");
	ASSERT(!is_doomed(partition), "partition %d is", partition);
	ASSERT(strstr(refusal(mark), reason), "not: %s", reason);
	close(mark);
}

struct actor start_frozen_instance(void)
{
	struct actor actor;

	require_partitions();
	actor = start_instance(ANY, 8 * MIB);
	contain(actor.pid);
	freeze();
	return actor;
}

void end_contained(struct actor *actor)
{
	ASSERT(write_text(CGROUP "/cgroup.kill", "1"), "%m");
	actor_kill(actor);
	ASSERT(WAIT_FOR(partition_is(actor->partition, "free"), PROMPT_MS), "%s",
	       partition_state(actor->partition));
	ASSERT(!is_doomed(actor->partition), "a free partition is doomed");
	remove_cgroup();
}
