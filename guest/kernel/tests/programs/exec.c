// SPDX-License-Identifier: GPL-2.0
/*
 * An assignment across execve(2), fork(2) and threads: when it takes effect, who inherits it, what
 * drops it.
 */
#define _GNU_SOURCE
#include "actor.h"
#include "harness.h"
#include "memory.h"
#include "pages.h"
#include "squeezy.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

/* Exits with 0 if it runs in the partition it is told, or in none and is told NOBODY. */
BODY(expect)
{
	int want = atoi(argv[0]);
	long got = squeezy_get(0);

	if (want == NOBODY) {
		ASSERT(got == -1 && errno == ENODATA, "runs in %ld", got);
		return;
	}
	ASSERT(got == want, "runs in %ld, not in %d", got, want);
	assert_confined(getpid(), 1);
}

/* The words of a command that runs it. */
#define EXPECT(want)	{ "self", "--body", "expect", (want), NULL }

TEST(takes_effect_at_the_next_execve_only)
{
	char number[16], *argv_[] = EXPECT(number);
	struct places seen;
	char *memory;
	int partition;

	require_partitions();
	partition = OK(squeezy_assign(ANY, 0));
	ASSERT_ERRNO(squeezy_get(0), ENODATA);
	memory = map_anon(4 * MIB);
	fill(memory, 4 * MIB, 1);
	count_places(memory, 4 * MIB, &seen);
	ASSERT_EQ(seen.inside[partition], 0);
	snprintf(number, sizeof(number), "%d", partition);
	OK(execv("/proc/self/exe", argv_));
}

struct vfork_data {
	char *argv[5];
	int partition;
};

static int vfork_child(void *arg)
{
	struct vfork_data *data = arg;

	data->partition = squeezy_assign(ANY, 0);
	if (data->partition < 0)
		_exit(TEST_FAIL);
	sprintf(data->argv[3], "%d", data->partition);
	execv("/proc/self/exe", data->argv);
	_exit(TEST_FAIL);
}

static int vfork_child_that_exits(void *arg)
{
	struct vfork_data *data = arg;

	data->partition = squeezy_assign(ANY, 0);
	_exit(data->partition < 0 ? TEST_FAIL : TEST_PASS);
}

/* A child that shares the memory of its parent, which waits for it. */
static void run_vfork_child(int (*fn)(void *), struct vfork_data *data)
{
	char *stack = map_anon(256 * KIB);
	pid_t pid = OK(clone(fn, stack + 256 * KIB, CLONE_VM | CLONE_VFORK | SIGCHLD, data));
	int status;

	OK(waitpid(pid, &status, 0));
	ASSERT(status == 0, "wait status %#x", status);
}

TEST(a_vfork_child_does_not_assign_its_parent)
{
	static char number[16];
	struct vfork_data data = { .argv = EXPECT(number) };
	char *memory;

	require_partitions();
	run_vfork_child(vfork_child, &data);
	ASSERT_ERRNO(squeezy_get(0), ENODATA);
	ASSERT_ERRNO(squeezy_cancel(), ENODATA);
	memory = map_anon(MIB);
	fill(memory, MIB, 1);
	ASSERT(place_of(pfn_of(memory)) < 0, "the parent's memory is in a partition");
	ASSERT(WAIT_FOR(partition_is(data.partition, "free"), 5000), "%s",
	       partition_state(data.partition));

	run_vfork_child(vfork_child_that_exits, &data);
	ASSERT_ERRNO(squeezy_cancel(), ENODATA);
	ASSERT(WAIT_FOR(partition_is(data.partition, "free"), 5000), "%s",
	       partition_state(data.partition));
}

static void expect_child(void *data)
{
	int want = *(int *)data;

	ASSERT_EQ(squeezy_get(0), want);
	assert_confined(getpid(), 1);
}

static void *expect_thread(void *data)
{
	char *memory = map_anon(MIB);

	fill(memory, MIB, 1);
	assert_range_in(memory, MIB, *(int *)data);
	ASSERT_EQ(squeezy_get(0), *(int *)data);
	return NULL;
}

TEST_INSIDE(is_inherited_by_every_kind_of_child)
{
	int partition = OK(squeezy_get(0)), status;
	static char number[16];
	char *argv_[] = EXPECT(number);
	pthread_t thread;
	pid_t pid;

	sprintf(number, "%d", partition);
	in_child_ok(expect_child, &partition);

	ASSERT_EQ(pthread_create(&thread, NULL, expect_thread, &partition), 0);
	pthread_join(thread, NULL);
	ASSERT_EQ(partition_users(partition), 1);

	pid = OK(fork());
	if (!pid) {
		execv("/proc/self/exe", argv_);
		_exit(TEST_FAIL);
	}
	OK(waitpid(pid, &status, 0));
	ASSERT(status == 0, "fork and exec: %#x", status);

	pid = OK(vfork());
	if (!pid) {
		execv("/proc/self/exe", argv_);
		_exit(TEST_FAIL);
	}
	OK(waitpid(pid, &status, 0));
	ASSERT(status == 0, "vfork and exec: %#x", status);

	ASSERT_EQ(posix_spawn(&pid, "/proc/self/exe", NULL, NULL, argv_, environ), 0);
	OK(waitpid(pid, &status, 0));
	ASSERT(status == 0, "posix_spawn: %#x", status);
	ASSERT_EQ(partition_users(partition), 1);
	/* And kept across an execve of its own. */
	execv("/proc/self/exe", argv_);
	FAIL("execv: %m");
}

TEST_INSIDE(a_script_keeps_it)
{
	char text[256], self[128], number[16];
	ssize_t length = OK(readlink("/proc/self/exe", self, sizeof(self) - 1));
	int fd;

	self[length] = 0;
	snprintf(number, sizeof(number), "%ld", squeezy_get(0));
	/* The interpreter is given the script's path, which here names the body to run. */
	snprintf(text, sizeof(text), "#!%s --body\n", self);
	/* The script is memory of the partition, and has to end with this process. */
	OK(unshare(CLONE_NEWNS));
	OK(mount("tmpfs", "/tmp", "tmpfs", 0, NULL));
	fd = OK(open("/tmp/expect", O_CREAT | O_WRONLY | O_TRUNC, 0755));
	OK(write(fd, text, strlen(text)));
	close(fd);
	execl("/tmp/expect", "expect", number, NULL);
	FAIL("execl: %m");
}

TEST(fork_does_not_copy_what_is_pending)
{
	int partition, status;
	pid_t pid;

	require_partitions();
	partition = OK(squeezy_assign(ANY, 0));
	pid = OK(fork());
	if (!pid) {
		static char nobody[16];
		char *argv_[] = EXPECT(nobody);

		sprintf(nobody, "%d", NOBODY);
		ASSERT_ERRNO(squeezy_cancel(), ENODATA);
		execv("/proc/self/exe", argv_);
		_exit(TEST_FAIL);
	}
	OK(waitpid(pid, &status, 0));
	ASSERT(status == 0, "%#x", status);
	ASSERT_EQ(partition_users(partition), 1);
	OK(squeezy_cancel());
}

TEST(a_failed_execve_keeps_what_is_pending)
{
	static char number[16];
	char *argv_[] = EXPECT(number);
	char *huge[3] = { "self", NULL, NULL };
	int partition, fd, i;

	require_partitions();
	fd = OK(open("/tmp/no-program", O_CREAT | O_WRONLY | O_TRUNC, 0755));
	OK(write(fd, "\177ELFnonsense", 12));
	close(fd);
	partition = OK(squeezy_assign(ANY, 0));
	for (i = 0; i < 3; i++) {
		/* Before the new memory is made, after it, and while it is being filled. */
		ASSERT_ERRNO(execl("/nonexistent", "x", NULL), ENOENT);
		ASSERT_ERRNO(execl("/tmp/no-program", "x", NULL), ENOEXEC);
		huge[1] = (char *)16;
		ASSERT_ERRNO(syscall(SYS_execve, "/proc/self/exe", huge, NULL), EFAULT);
	}
	ASSERT_EQ(partition_users(partition), 1);
	ASSERT_ERRNO(squeezy_get(0), ENODATA);
	sprintf(number, "%d", partition);
	execv("/proc/self/exe", argv_);
	FAIL("execv: %m");
}

static void assign_and_exit(void *data)
{
	*(int *)data = OK(squeezy_assign(ANY, 0));
}

static void assign_and_die(void *data)
{
	*(int *)data = OK(squeezy_assign(ANY, 0));
	kill(getpid(), SIGKILL);
}

static void *assign_thread(void *data)
{
	*(int *)data = OK(squeezy_assign(ANY, 0));
	return NULL;
}

TEST(what_is_pending_is_dropped_at_exit)
{
	int *partition = mmap(NULL, PAGE, PROT_READ | PROT_WRITE,
			      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	pthread_t thread;

	require_partitions();
	in_child_ok(assign_and_exit, partition);
	ASSERT(WAIT_FOR(partition_is(*partition, "free"), 5000), "%s", partition_state(*partition));
	in_child(assign_and_die, partition);
	ASSERT(WAIT_FOR(partition_is(*partition, "free"), 5000), "%s", partition_state(*partition));
	/* It belongs to the thread that asked. */
	ASSERT_EQ(pthread_create(&thread, NULL, assign_thread, partition), 0);
	pthread_join(thread, NULL);
	ASSERT_ERRNO(squeezy_cancel(), ENODATA);
	ASSERT(WAIT_FOR(partition_is(*partition, "free"), 5000), "%s", partition_state(*partition));
}

static void *exec_thread(void *data)
{
	static char number[16];
	char *argv_[] = EXPECT(number);

	sprintf(number, "%d", (int)OK(squeezy_assign(ANY, 0)));
	execv("/proc/self/exe", argv_);
	*(int *)data = errno;
	return NULL;
}

TEST(a_thread_that_executes_takes_it_along)
{
	pthread_t thread;
	int error;

	require_partitions();
	ASSERT_EQ(pthread_create(&thread, NULL, exec_thread, &error), 0);
	pthread_join(thread, NULL);
	FAIL("execv in a thread: %s", strerror(error));
}

