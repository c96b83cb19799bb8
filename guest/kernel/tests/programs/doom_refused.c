// SPDX-License-Identifier: GPL-2.0
/*
 * Instances that cannot be doomed, because they could go on or exit would miss something in their
 * memory; and what is no obstacle.
 */
#define _GNU_SOURCE
#include "actor.h"
#include "frozen.h"
#include "harness.h"
#include "instance.h"
#include "memfile.h"
#include "memory.h"
#include "squeezy.h"

#include <linux/futex.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Memory as instances have it: huge pages, whole, in part and shared with a child, and files. */
ACTOR(has_all_kinds_of_memory)
{
	char *huge = map_huge(4 * HUGE_PAGE), *own = map_anon(MIB), *shared;
	int file = OK(memfd_create("own", 0)), left = OK(memfd_create("unmapped", 0));

	/* Until it is in its cgroup, which children are in from the start. */
	hear();
	fill(huge, 4 * HUGE_PAGE, 1);
	OK(munmap(huge + HUGE_PAGE, 8 * PAGE));
	fill(own, MIB, 2);
	shared = map_file(file, MIB);
	fill(shared, MIB, 3);
	ASSERT_EQ(write_zeroes(left, MIB), MIB);
	if (!fork_child()) {
		/* Some are its own now. */
		fill(own, MIB / 2, 4);
		OK(mprotect(huge, PAGE, PROT_READ));
		tell("ready");
		for (;;)
			pause();
	}
	while (!strcmp(hear(), "check"))
		tell(filled(huge, HUGE_PAGE, 1) && filled(own, MIB, 2) && filled(shared, MIB, 3) ?
		     "intact" : "broken");
}

TEST(all_kinds_of_memory_can_be_doomed)
{
	struct actor actor;

	require_partitions();
	actor = actor_start(ANY, "has_all_kinds_of_memory", NULL);
	contain(actor.pid);
	actor_tell(&actor, "go on");
	actor_hear(&actor);
	freeze();
	doom(actor.partition);
	undoom(actor.partition);
	thaw();
	actor_tell(&actor, "check");
	ASSERT(!strcmp(actor_hear(&actor), "intact"), "memory has changed");
	freeze();
	doom(actor.partition);
	end_contained(&actor);
}

TEST(a_process_that_runs_is_ebusy)
{
	struct actor actor;

	require_partitions();
	actor = start_instance(ANY, MIB);
	contain(actor.pid);
	assert_not_doomed(actor.partition, "is not frozen");
	freeze();
	thaw();
	assert_not_doomed(actor.partition, "is not frozen");
	assert_intact(&actor);
	end_contained(&actor);
}

ACTOR(has_a_child)
{
	if (!fork_child())
		for (;;)
			pause();
	tell("forked");
	hear();
}

TEST(a_child_outside_of_the_frozen_cgroup_is_ebusy)
{
	struct actor actor;

	require_partitions();
	actor = actor_start(ANY, "has_a_child", NULL);
	actor_hear(&actor);
	contain(actor.pid);
	freeze();
	assert_not_doomed(actor.partition, "is not frozen");
	end_contained(&actor);
}

TEST(a_process_that_is_only_stopped_is_ebusy)
{
	struct actor actor;
	int status;

	require_partitions();
	actor = start_instance(ANY, MIB);
	contain(actor.pid);
	kill(actor.pid, SIGSTOP);
	OK(waitpid(actor.pid, &status, WUNTRACED));
	assert_not_doomed(actor.partition, "is not frozen");
	/* One that was stopped before it was frozen is both. */
	freeze();
	doom(actor.partition);
	kill(actor.pid, SIGCONT);
	sleep_ms(50);
	ASSERT(actor_alive(&actor), "SIGCONT has thawed it");
	undoom(actor.partition);
	thaw();
	assert_intact(&actor);
	end_contained(&actor);
}

TEST(a_process_that_is_traced_is_ebusy)
{
	struct actor actor = start_frozen_instance();

	OK(ptrace(PTRACE_SEIZE, actor.pid, NULL, NULL));
	assert_not_doomed(actor.partition, "is not frozen");
	end_contained(&actor);
}

TEST(who_waits_for_a_partition_does_not_matter)
{
	struct actor actor = start_frozen_instance();
	pid_t waiting = fork_child();

	if (!waiting) {
		squeezy_assign(actor.partition, 200);
		_exit(TEST_PASS);
	}
	doom(actor.partition);
	OK(waitpid(waiting, NULL, 0));
	end_contained(&actor);
}

TEST(a_partition_before_the_execve_is_ebusy)
{
	long partition;

	require_partitions();
	partition = squeezy_assign(ANY, 0);
	ASSERT(partition >= 0, "%m");
	assert_not_doomed(partition, "no process in it");
	OK(squeezy_cancel());
}

ACTOR(holds_a_robust_futex)
{
	static struct { struct robust_list_head head; struct robust_list lock; } list;

	list.head.list.next = &list.lock;
	list.lock.next = &list.head.list;
	OK(syscall(SYS_set_robust_list, &list.head, sizeof(list.head)));
	tell("holding");
	hear();
	list.head.list.next = &list.head.list;
	tell("released");
	hear();
}

TEST(robust_futexes_are_ebusy)
{
	struct actor actor;

	require_partitions();
	actor = actor_start(ANY, "holds_a_robust_futex", NULL);
	contain(actor.pid);
	actor_hear(&actor);
	freeze();
	assert_not_doomed(actor.partition, "holds robust futexes");
	thaw();
	actor_tell(&actor, "go on");
	actor_hear(&actor);
	freeze();
	doom(actor.partition);
	end_contained(&actor);
}

ACTOR(shares_its_id)
{
	OK(syscall(SYS_set_tid_address, map_file(atoi(argv[0]), PAGE)));
	tell("ready");
	hear();
}

TEST(a_thread_id_in_shared_memory_is_ebusy)
{
	struct actor actor;
	char number[16];
	int file;

	require_partitions();
	file = OK(memfd_create("shared", 0));
	snprintf(number, sizeof(number), "%d", file);
	actor = actor_start(ANY, "shares_its_id", number, NULL);
	contain(actor.pid);
	actor_hear(&actor);
	freeze();
	assert_not_doomed(actor.partition, "thread id in shared memory");
	end_contained(&actor);
	close(file);
}
