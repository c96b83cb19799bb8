// SPDX-License-Identifier: GPL-2.0
/* Assigning: who may, which partition it gets, whom the kernel counts in it. */
#define _GNU_SOURCE
#include "actor.h"
#include "harness.h"
#include "instance.h"
#include "memory.h"
#include "squeezy.h"

#include <errno.h>
#include <linux/capability.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static void drop_capability(void)
{
	struct __user_cap_header_struct header = { _LINUX_CAPABILITY_VERSION_3, 0 };
	struct __user_cap_data_struct data[2];

	OK(syscall(SYS_capget, &header, data));
	data[0].effective &= ~(1u << CAP_SYS_RESOURCE);
	OK(syscall(SYS_capset, &header, data));
}

TEST(wrong_arguments_are_einval)
{
	require_partitions();
	ASSERT_ERRNO(prctl(PR_SQUEEZY, 0L, 0L, 0L, 0L), EINVAL);
	ASSERT_ERRNO(prctl(PR_SQUEEZY, 99L, 0L, 0L, 0L), EINVAL);
	ASSERT_ERRNO(prctl(PR_SQUEEZY, -1L, 0L, 0L, 0L), EINVAL);
	ASSERT_ERRNO(prctl(PR_SQUEEZY, (long)PR_SQUEEZY_ASSIGN, -1L, 0L, 1L), EINVAL);
	ASSERT_ERRNO(prctl(PR_SQUEEZY, (long)PR_SQUEEZY_CANCEL, 0L, 0L, 1L), EINVAL);
	ASSERT_ERRNO(prctl(PR_SQUEEZY, (long)PR_SQUEEZY_CANCEL, 1L, 0L, 0L), EINVAL);
	ASSERT_ERRNO(prctl(PR_SQUEEZY, (long)PR_SQUEEZY_CANCEL, 0L, 1L, 0L), EINVAL);
	ASSERT_ERRNO(prctl(PR_SQUEEZY, (long)PR_SQUEEZY_GET, 0L, 1L, 0L), EINVAL);
	ASSERT_ERRNO(prctl(PR_SQUEEZY, (long)PR_SQUEEZY_GET, 0L, 0L, 1L), EINVAL);
	ASSERT_ERRNO(squeezy_assign(-2, 0), EINVAL);
	ASSERT_ERRNO(squeezy_assign(partitions(), 0), EINVAL);
	ASSERT_ERRNO(squeezy_assign(1 << 30, 0), EINVAL);
	/* Numbers that only fit into 64 bits must not be cut to ones that are right. */
	ASSERT_ERRNO(prctl(PR_SQUEEZY, (long)PR_SQUEEZY_ASSIGN, 1L << 32, 0L, 0L), EINVAL);
	ASSERT_ERRNO(squeezy_cancel(), ENODATA);
}

TEST(without_partitions_is_enodev)
{
	if (have_partitions())
		skip("this kernel has partitions; it is for a boot without them");
	errno = 0;
	ASSERT_EQ(squeezy_assign(ANY, 0), -1);
	if (errno == EINVAL)
		skip("this kernel was built without CONFIG_SQUEEZY");
	ASSERT_EQ(errno, ENODEV);
	ASSERT_ERRNO(squeezy_get(0), ENODEV);
	ASSERT_ERRNO(squeezy_cancel(), ENODEV);
}

static void assign_without_capability(void *unused)
{
	(void)unused;
	drop_capability();
	ASSERT_ERRNO(squeezy_assign(ANY, 0), EPERM);
	ASSERT_ERRNO(squeezy_assign(0, 0), EPERM);
	/* Looking needs no capability. */
	ASSERT_ERRNO(squeezy_get(0), ENODATA);
	ASSERT_ERRNO(squeezy_cancel(), ENODATA);
}

static void assign_in_user_namespace(void *unused)
{
	(void)unused;
	if (unshare(CLONE_NEWUSER))
		skip("no user namespaces: %m");
	ASSERT_ERRNO(squeezy_assign(ANY, 0), EPERM);
}

TEST(needs_the_capability_in_the_initial_user_namespace)
{
	require_partitions();
	in_child_ok(assign_without_capability, NULL);
	in_child_ok(assign_in_user_namespace, NULL);
}

ACTOR(assigned_asks_again)
{
	ASSERT_ERRNO(squeezy_assign(ANY, 0), EBUSY);
	ASSERT_ERRNO(squeezy_assign(squeezy_get(0), 0), EBUSY);
	ASSERT_ERRNO(squeezy_cancel(), ENODATA);
}

TEST(a_second_partition_is_ebusy)
{
	struct actor actor;
	int partition;

	require_partitions();
	partition = OK(squeezy_assign(ANY, 0));
	ASSERT_EQ(partition_users(partition), 1);
	ASSERT_ERRNO(squeezy_assign(ANY, 0), EBUSY);
	ASSERT_ERRNO(squeezy_assign(partition, 0), EBUSY);
	/* Pending is not running in it. */
	ASSERT_ERRNO(squeezy_get(0), ENODATA);
	OK(squeezy_cancel());
	ASSERT(WAIT_FOR(partition_is(partition, "free"), 5000), "%s", partition_state(partition));
	actor = actor_start(ANY, "assigned_asks_again", NULL);
	actor_join(&actor);
}

TEST(assigns_the_number_asked_for)
{
	struct actor actor;
	int i;

	require_partitions();
	for (i = partitions() - 1; i >= 0; i--) {
		if (!partition_is(i, "free"))
			continue;
		actor = start_instance(i, 0);
		ASSERT_EQ(actor.partition, i);
		ASSERT(partition_is(i, "assigned"), "%s", partition_state(i));
		ASSERT_EQ(partition_users(i), 1);
		/* It is taken, whoever asks. */
		ASSERT_ERRNO(squeezy_assign(i, 0), EAGAIN);
		actor_kill(&actor);
	}
}

TEST(any_gives_every_free_partition_once)
{
	struct actor actors[255];
	int count, i;

	require_partitions();
	count = partitions_in_state("free");
	ASSERT_GE(count, 1);
	for (i = 0; i < count; i++)
		actors[i] = start_instance(ANY, 0);
	ASSERT_EQ(partitions_in_state("free"), 0);
	ASSERT_EQ(partitions_in_state("assigned"), count);
	ASSERT_ERRNO(squeezy_assign(ANY, 0), EAGAIN);
	for (i = 0; i < count; i++)
		actor_kill(&actors[i]);
}

TEST(get_answers_for_others)
{
	struct actor actor;
	pid_t gone;

	require_partitions();
	ASSERT_ERRNO(squeezy_get(0), ENODATA);
	ASSERT_ERRNO(squeezy_get(1), ENODATA);
	actor = start_instance(ANY, 0);
	ASSERT_EQ(squeezy_get(actor.pid), actor.partition);
	gone = actor.pid;
	actor_kill(&actor);
	ASSERT_ERRNO(squeezy_get(gone), ESRCH);
}

TEST(a_zombie_holds_nothing)
{
	struct actor actor;
	siginfo_t info;

	require_partitions();
	actor = start_instance(ANY, 0);
	kill(actor.pid, SIGKILL);
	OK(waitid(P_PID, actor.pid, &info, WEXITED | WNOWAIT));
	ASSERT(WAIT_FOR(partition_is(actor.partition, "free"), 5000), "%s",
	       partition_state(actor.partition));
	ASSERT_EQ(squeezy_get(actor.pid), -1);
	actor_wait(&actor);
}

ACTOR(tree)
{
	int depth = atoi(argv[0]), i;

	for (i = 0; i < depth; i++) {
		fill(map_anon(64 * KIB), 64 * KIB, i);
		if (fork() < 0)
			FAIL("fork: %m");
	}
	/* Until whoever started the first of them closes its end. */
	hear();
}

TEST(users_count_every_address_space)
{
	struct actor actor;
	int users;

	require_partitions();
	actor = actor_start(ANY, "tree", "4", NULL);
	ASSERT(WAIT_FOR(partition_users(actor.partition) == 16, 5000), "%d",
	       partition_users(actor.partition));
	close(actor.fd);
	actor_wait(&actor);
	ASSERT(WAIT_FOR((users = partition_users(actor.partition)) == 0, 10000), "%d left", users);
	ASSERT(WAIT_FOR(partition_is(actor.partition, "free"), 5000), "%s",
	       partition_state(actor.partition));
	ASSERT_EQ(partition_free(actor.partition), partition_managed(actor.partition));
}

TEST(assignments_are_counted)
{
	struct actor actor;
	u64 before;

	require_partitions();
	before = counter("assignments");
	actor = start_instance(ANY, 0);
	actor_kill(&actor);
	ASSERT_EQ(counter("assignments"), before + 1);
}
