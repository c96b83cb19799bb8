// SPDX-License-Identifier: GPL-2.0
/*
 * Instances with a system call that a seccomp supervisor outside has to answer, for which it may
 * look at their memory.
 */
#define _GNU_SOURCE
#include "actor.h"
#include "frozen.h"
#include "harness.h"
#include "memory.h"
#include "squeezy.h"
#include "system.h"

#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#define SEED	6
#define ANSWER	4711

/* It has a supervisor for getppid(2), whom it passes some memory, too. */
ACTOR(asks_a_supervisor)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_getppid, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = { sizeof(code) / sizeof(*code), code };
	unsigned long flags = SECCOMP_FILTER_FLAG_NEW_LISTENER | strtoul(argv[0], NULL, 10);
	char *memory = map_anon(PAGE);
	int listener;

	fill(memory, PAGE, SEED);
	listener = OK(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, &program));
	send_fd(listener);
	close(listener);
	tell("%ld", syscall(SYS_getppid, memory));
	hear();
}

/* Starts it with more flags for its filter, in a cgroup; what its supervisor listens to. */
static int start_supervised(struct actor *actor, unsigned long flags)
{
	char number[16];

	require_partitions();
	snprintf(number, sizeof(number), "%lu", flags);
	*actor = actor_start(ANY, "asks_a_supervisor", number, NULL);
	contain(actor->pid);
	return actor_receive_fd(actor);
}

/* Waits for a call, and takes it. */
static struct seccomp_notif take_call(int listener)
{
	struct seccomp_notif call = { 0 };

	OK(ioctl(listener, SECCOMP_IOCTL_NOTIF_RECV, &call));
	ASSERT_EQ(call.data.nr, SYS_getppid);
	return call;
}

static int answer(int listener, const struct seccomp_notif *call)
{
	struct seccomp_notif_resp response = { .id = call->id, .val = ANSWER };

	return ioctl(listener, SECCOMP_IOCTL_NOTIF_SEND, &response);
}

/* Reads the memory that the call is about. */
static ssize_t look_at_memory(const struct seccomp_notif *call, u64 *value)
{
	struct iovec here = { value, sizeof(*value) };
	struct iovec there = { (void *)(uintptr_t)call->data.args[0], sizeof(*value) };

	return process_vm_readv(call->pid, &here, 1, &there, 1, 0);
}

static void assert_seen(const struct seccomp_notif *call)
{
	u64 value = 0;

	ASSERT_EQ(look_at_memory(call, &value), sizeof(value));
	ASSERT_EQ(value, SEED);
}

/* S, D and so on. */
static char state_of(pid_t pid)
{
	char path[32], text[512], *name_end;

	snprintf(path, sizeof(path), "/proc/%d/stat", pid);
	ASSERT(read_text(path, text, sizeof(text)), "%s: %m", path);
	name_end = strrchr(text, ')');
	ASSERT(name_end && name_end[1] == ' ', "%s holds '%s'", path, text);
	return name_end[2];
}

/* A call that its supervisor has taken ends with the answer or a kill, and not with the freezer. */
TEST(a_call_that_only_a_kill_interrupts_is_ebusy)
{
	struct seccomp_notif call;
	struct actor actor;
	int listener;

	listener = start_supervised(&actor, SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV);
	call = take_call(listener);
	ASSERT(write_text(CGROUP "/cgroup.freeze", "1"), "%m");
	/* It has noticed that it is to be frozen, and waits on. */
	ASSERT(WAIT_FOR(state_of(actor.pid) == 'D', PROMPT_MS), "%c", state_of(actor.pid));
	assert_not_doomed(actor.partition, "is not frozen");
	assert_seen(&call);
	OK(answer(listener, &call));
	freeze();
	doom(actor.partition);
	end_contained(&actor);
	close(listener);
}

/* Without that flag the freezer interrupts the call, which begins anew if the instance lives on. */
TEST(a_supervisor_has_no_call_of_what_is_doomed)
{
	struct seccomp_notif call;
	struct actor actor;
	int listener;
	u64 value;

	listener = start_supervised(&actor, 0);
	call = take_call(listener);
	assert_seen(&call);
	freeze();
	doom(actor.partition);
	ASSERT_ERRNO(look_at_memory(&call, &value), EFAULT);
	ASSERT_ERRNO(answer(listener, &call), ENOENT);
	undoom(actor.partition);
	thaw();
	call = take_call(listener);
	assert_seen(&call);
	OK(answer(listener, &call));
	ASSERT_EQ(atol(actor_hear(&actor)), ANSWER);
	end_contained(&actor);
	close(listener);
}
