// SPDX-License-Identifier: GPL-2.0
/* Assigning: who may, when it takes effect, who inherits it, how it ends, what it waits for. */
#define _GNU_SOURCE
#include "harness.h"
#include "host.h"
#include "squeezy.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

/* Holds its partition until it is told to go. */
ACTOR(holder)
{
	hear();
}

/* Exits with 0 if it runs in the partition it is told, or in none and is told NOBODY. */
PLAIN(expect)
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
		actor = actor_start(i, "holder", NULL);
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
		actors[i] = actor_start(ANY, "holder", NULL);
	ASSERT_EQ(partitions_in_state("free"), 0);
	ASSERT_EQ(partitions_in_state("assigned"), count);
	ASSERT_ERRNO(squeezy_assign(ANY, 0), EAGAIN);
	for (i = 0; i < count; i++)
		actor_kill(&actors[i]);
}

/* Starts holders in all partitions that are free. */
static int hold_all(struct actor *actors)
{
	int count = partitions_in_state("free"), i;

	if (count < 2)
		skip("two partitions have to be free, and %d are", count);
	for (i = 0; i < count; i++)
		actors[i] = actor_start(ANY, "holder", NULL);
	return count;
}

TEST(waiting_ends_with_etimedout)
{
	struct actor actors[255];
	u64 timeouts, start;

	require_partitions();
	hold_all(actors);
	timeouts = counter("wait_timeouts");
	start = now_ms();
	ASSERT_ERRNO(squeezy_assign(ANY, 100), ETIMEDOUT);
	ASSERT_GE(now_ms() - start, 100);
	ASSERT_LE(now_ms() - start, 5000);
	ASSERT_ERRNO(squeezy_assign(actors[0].partition, 20), ETIMEDOUT);
	ASSERT_EQ(counter("wait_timeouts"), timeouts + 2);
	ASSERT_ERRNO(squeezy_cancel(), ENODATA);
}

static void ignore(int signal)
{
	(void)signal;
}

TEST(waiting_ends_with_eintr)
{
	struct sigaction action = { .sa_handler = ignore };
	struct itimerval in_50_ms = { .it_value.tv_usec = 50000 };
	struct actor actors[255];

	require_partitions();
	hold_all(actors);
	OK(sigaction(SIGALRM, &action, NULL));
	OK(setitimer(ITIMER_REAL, &in_50_ms, NULL));
	ASSERT_ERRNO(squeezy_assign(ANY, -1), EINTR);
	/* The same with a handler that would restart other calls. */
	action.sa_flags = SA_RESTART;
	OK(sigaction(SIGALRM, &action, NULL));
	OK(setitimer(ITIMER_REAL, &in_50_ms, NULL));
	ASSERT_ERRNO(squeezy_assign(ANY, -1), EINTR);
}

ACTOR(waiter)
{
	int wait_ms = atoi(argv[0]);
	long got;

	tell("waiting");
	got = squeezy_assign(ANY, wait_ms);
	tell("%ld", got);
	hear();
}

TEST(a_release_wakes_who_waits)
{
	struct actor actors[255], waiters[2];
	u64 waits, start;
	int i, number;

	require_partitions();
	hold_all(actors);
	waits = counter("waits");
	waiters[0] = actor_start(NOBODY, "waiter", "-1", NULL);
	waiters[1] = actor_start(NOBODY, "waiter", "20000", NULL);
	for (i = 0; i < 2; i++)
		actor_hear(&waiters[i]);
	ASSERT(WAIT_FOR(counter("waits") == waits + 2, 2000), "%llu", counter("waits") - waits);
	for (i = 0; i < 2; i++) {
		/* Each release serves one, and it gets what was released. */
		start = now_ms();
		actor_kill(&actors[i]);
		ASSERT(WAIT_FOR(partition_users(actors[i].partition) == 1, 5000),
		       "nobody took partition %d", actors[i].partition);
		note("woken after %llu ms", now_ms() - start);
	}
	for (i = 0; i < 2; i++) {
		number = atoi(actor_hear(&waiters[i]));
		ASSERT(number == actors[0].partition || number == actors[1].partition, "%d",
		       number);
		actor_kill(&waiters[i]);
	}
}

TEST(a_plug_wakes_who_waits)
{
	struct actor waiter;
	u64 start;

	require_partitions();
	require_host();
	host_partitions(0, 10000);
	waiter = actor_start(NOBODY, "waiter", "20000", NULL);
	actor_hear(&waiter);
	sleep_ms(50);
	start = now_ms();
	host_request_size(size_of_partitions(1));
	ASSERT_EQ(atoi(actor_hear(&waiter)), 0);
	note("woken after %llu ms", now_ms() - start);
	actor_kill(&waiter);
	host_partitions(partitions(), 20000);
}

TEST(a_waiter_that_is_killed_leaves_nothing)
{
	struct actor actors[255], waiter;
	int partition;

	require_partitions();
	hold_all(actors);
	waiter = actor_start(NOBODY, "waiter", "-1", NULL);
	actor_hear(&waiter);
	sleep_ms(50);
	actor_kill(&waiter);
	partition = actors[0].partition;
	actor_kill(&actors[0]);
	ASSERT(WAIT_FOR(partition_is(partition, "free"), 5000), "%s", partition_state(partition));
}

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

TEST(get_answers_for_others)
{
	struct actor actor;
	pid_t gone;

	require_partitions();
	ASSERT_ERRNO(squeezy_get(0), ENODATA);
	ASSERT_ERRNO(squeezy_get(1), ENODATA);
	actor = actor_start(ANY, "holder", NULL);
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
	actor = actor_start(ANY, "holder", NULL);
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
	actor = actor_start(ANY, "holder", NULL);
	actor_kill(&actor);
	ASSERT_EQ(counter("assignments"), before + 1);
}
