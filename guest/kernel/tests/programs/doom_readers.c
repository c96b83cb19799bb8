// SPDX-License-Identifier: GPL-2.0
/*
 * Others do not get at the memory of a doomed instance, nor at its files.
 */
#define _GNU_SOURCE
#include "actor.h"
#include "frozen.h"
#include "harness.h"
#include "memfile.h"
#include "memory.h"
#include "squeezy.h"
#include "system.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/sendfile.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

ACTOR(shows_its_memory)
{
	char *memory = map_anon(MIB);

	fill(memory, MIB, 7);
	tell("%p", memory);
	while (!strcmp(hear(), "check"))
		tell(filled(memory, MIB, 7) ? "intact" : "broken");
}

static void assert_unreadable(pid_t pid, char *remote)
{
	static char local[PAGE];
	struct iovec here = { local, PAGE }, there = { remote, PAGE };
	char path[64];
	int fd;

	ASSERT_ERRNO(process_vm_readv(pid, &here, 1, &there, 1, 0), EFAULT);
	ASSERT_ERRNO(process_vm_writev(pid, &here, 1, &there, 1, 0), EFAULT);
	snprintf(path, sizeof(path), "/proc/%d/mem", pid);
	fd = OK(open(path, O_RDWR));
	ASSERT_ERRNO(pread(fd, local, PAGE, (uintptr_t)remote), EIO);
	ASSERT_ERRNO(pwrite(fd, local, PAGE, (uintptr_t)remote), EIO);
	close(fd);
	snprintf(path, sizeof(path), "/proc/%d/cmdline", pid);
	ASSERT(read_text(path, local, sizeof(local)), "%m");
	ASSERT(!local[0], "the command line is %s", local);
}

TEST(others_cannot_read_what_is_doomed)
{
	char *remote, byte;
	struct iovec here = { &byte, 1 }, there;
	struct actor actor;

	require_partitions();
	actor = actor_start(ANY, "shows_its_memory", NULL);
	contain(actor.pid);
	remote = (char *)strtoull(actor_hear(&actor), NULL, 0);
	there = (struct iovec){ remote, 1 };
	freeze();
	ASSERT_EQ(process_vm_readv(actor.pid, &here, 1, &there, 1, 0), 1);
	doom(actor.partition);
	assert_unreadable(actor.pid, remote);
	undoom(actor.partition);
	ASSERT_EQ(process_vm_readv(actor.pid, &here, 1, &there, 1, 0), 1);
	thaw();
	actor_tell(&actor, "check");
	ASSERT(!strcmp(actor_hear(&actor), "intact"), "memory has changed");
	end_contained(&actor);
}

/* A debugger that comes later may stop it, and reads nothing. Once it lets go, that is the end. */
TEST(a_debugger_cannot_wake_what_is_doomed)
{
	struct actor actor;
	char *remote;
	int status;

	require_partitions();
	actor = actor_start(ANY, "shows_its_memory", NULL);
	contain(actor.pid);
	remote = (char *)strtoull(actor_hear(&actor), NULL, 0);
	freeze();
	doom(actor.partition);
	OK(ptrace(PTRACE_SEIZE, actor.pid, NULL, NULL));
	OK(ptrace(PTRACE_INTERRUPT, actor.pid, NULL, NULL));
	OK(waitpid(actor.pid, &status, 0));
	ASSERT(WIFSTOPPED(status), "wait status %#x", status);
	ASSERT_ERRNO(ptrace(PTRACE_PEEKDATA, actor.pid, remote, NULL), EIO);
	OK(ptrace(PTRACE_CONT, actor.pid, NULL, 0));
	actor_join_killed(&actor);
	ASSERT(WAIT_FOR(partition_is(actor.partition, "free"), PROMPT_MS), "%s",
	       partition_state(actor.partition));
	remove_cgroup();
}

ACTOR(shows_a_file)
{
	int file = OK(memfd_create("shown", 0));

	fill(map_file(file, MIB), MIB, 3);
	send_fd(file);
	tell("ready");
	hear();
}

static void touch_file(void *fd)
{
	volatile char *memory = map_file(*(int *)fd, MIB);

	(void)memory[0];
}

static void assert_file_unreadable(int file)
{
	static char buffer[PAGE];
	int null = OK(open("/dev/null", O_WRONLY)), ends[2], status;
	off_t start = 0;

	ASSERT_ERRNO(pread(file, buffer, sizeof(buffer), 0), EIO);
	ASSERT_ERRNO(pwrite(file, buffer, 1, 0), EIO);
	OK(pipe(ends));
	ASSERT_ERRNO(sendfile(ends[1], file, &start, PAGE), EIO);
	status = in_child(touch_file, &file);
	ASSERT(WIFSIGNALED(status) && WTERMSIG(status) == SIGBUS, "wait status %#x", status);
	close(ends[0]);
	close(ends[1]);
	close(null);
}

TEST(a_file_that_others_have_open_is_unreadable_for_good)
{
	static char buffer[PAGE];
	struct actor actor;
	int file;

	require_partitions();
	actor = actor_start(ANY, "shows_a_file", NULL);
	contain(actor.pid);
	file = actor_receive_fd(&actor);
	actor_hear(&actor);
	freeze();
	doom(actor.partition);
	assert_file_unreadable(file);
	undoom(actor.partition);
	ASSERT_EQ(pread(file, buffer, sizeof(buffer), 0), PAGE);
	ASSERT_EQ(*(u64 *)buffer, 3);
	doom(actor.partition);
	thaw();
	actor_join_killed(&actor);
	/* What is left of it is as unreadable, until nobody has it. */
	ASSERT(WAIT_FOR(partition_is_held(actor.partition), PROMPT_MS), "%s",
	       partition_state(actor.partition));
	assert_file_unreadable(file);
	ASSERT(!write_doom(actor.partition, "0") && errno == ENODATA, "%m");
	close(file);
	ASSERT(WAIT_FOR(partition_is(actor.partition, "free"), PROMPT_MS), "%s",
	       partition_state(actor.partition));
	ASSERT(!is_doomed(actor.partition), "still doomed");
	remove_cgroup();
}

TEST(a_file_that_others_map_is_ebusy)
{
	struct actor actor;
	char *memory;
	int file;

	require_partitions();
	actor = actor_start(ANY, "shows_a_file", NULL);
	contain(actor.pid);
	file = actor_receive_fd(&actor);
	actor_hear(&actor);
	memory = map_file(file, MIB);
	freeze();
	/* Whether it has touched it or not. */
	assert_not_doomed(actor.partition, "a file is mapped by others");
	ASSERT_EQ(*(u64 *)memory, 3);
	assert_not_doomed(actor.partition, "a file is mapped by others");
	OK(munmap(memory, MIB));
	close(file);
	doom(actor.partition);
	end_contained(&actor);
}

/* Without advice khugepaged leaves it alone. */
ACTOR(has_small_pages)
{
	uintptr_t memory = (uintptr_t)map_anon(2 * HUGE_PAGE);

	memory = (memory + HUGE_PAGE - 1) & ~(HUGE_PAGE - 1);
	fill((void *)memory, HUGE_PAGE, 1);
	tell("%p", (void *)memory);
	hear();
}

TEST(huge_pages_are_not_made_of_what_is_doomed)
{
	struct iovec there = { NULL, HUGE_PAGE };
	struct actor actor;
	int pid_fd;

	require_partitions();
	actor = actor_start(ANY, "has_small_pages", NULL);
	contain(actor.pid);
	there.iov_base = (void *)strtoull(actor_hear(&actor), NULL, 0);
	freeze();
	doom(actor.partition);
	pid_fd = OK(syscall(SYS_pidfd_open, actor.pid, 0));
	ASSERT(syscall(SYS_process_madvise, pid_fd, &there, 1, MADV_COLLAPSE, 0) < 0, "collapsed");
	undoom(actor.partition);
	if (syscall(SYS_process_madvise, pid_fd, &there, 1, MADV_COLLAPSE, 0) < 0)
		FAIL("it does not collapse when it is not doomed: %m");
	close(pid_fd);
	end_contained(&actor);
}
