// SPDX-License-Identifier: GPL-2.0
/* See harness.h. */
#define _GNU_SOURCE
#include "harness.h"
#include "squeezy.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MAX_ARGUMENTS 8

static struct body *bodies;
static struct body **last_body = &bodies;

void register_body(struct body *body)
{
	*last_body = body;
	last_body = &body->next;
}

/* @name may be a path: a script that runs this program is named for a body. */
static struct body *find_body(const char *name)
{
	const char *slash = strrchr(name, '/');
	struct body *body;

	name = slash ? slash + 1 : name;
	for (body = bodies; body; body = body->next)
		if (!strcmp(body->name, name))
			return body;
	return NULL;
}

/* One write() a line, so that the lines of several processes do not mix. */
static void print_line(const char *prefix, const char *fmt, va_list ap)
{
	char text[512];
	int used = snprintf(text, sizeof(text), "%s", prefix);

	used += vsnprintf(text + used, sizeof(text) - used - 1, fmt, ap);
	if (used > (int)sizeof(text) - 2)
		used = sizeof(text) - 2;
	text[used++] = '\n';
	if (write(STDOUT_FILENO, text, used) < 0)
		_exit(TEST_FAIL);
}

static void say(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	print_line("", fmt, ap);
	va_end(ap);
}

void note(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	print_line("# ", fmt, ap);
	va_end(ap);
}

void fail_at(const char *file, int line_number, const char *fmt, ...)
{
	char prefix[64];
	va_list ap;

	snprintf(prefix, sizeof(prefix), "# %s:%d: ", file, line_number);
	va_start(ap, fmt);
	print_line(prefix, fmt, ap);
	va_end(ap);
	_exit(TEST_FAIL);
}

void skip(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	print_line("# SKIP ", fmt, ap);
	va_end(ap);
	_exit(TEST_SKIP);
}

u64 now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000ull + t.tv_nsec / 1000000;
}

void sleep_ms(unsigned int ms)
{
	struct timespec t = { ms / 1000, ms % 1000 * 1000000l };

	nanosleep(&t, NULL);
}

unsigned int slowness(void)
{
	int factor = atoi(getenv("SELFTEST_SLOWNESS") ?: "1");

	return factor > 0 ? factor : 1;
}

void exec_body(const char *name, char *const arguments[])
{
	char *argv[MAX_ARGUMENTS + 4] = { "self", "--body", (char *)name };
	int i;

	for (i = 0; arguments && arguments[i] && i < MAX_ARGUMENTS; i++)
		argv[3 + i] = arguments[i];
	execv("/proc/self/exe", argv);
	FAIL("execv: %m");
}

void exec_inside(int partition, const char *name, char *const arguments[])
{
	long got = squeezy_assign(partition, 10000 * slowness());

	ASSERT(got >= 0, "assign %d: %m", partition);
	exec_body(name, arguments);
}

static void child_of_test(void)
{
	/* A test that fails leaves without tidying up: its children go with it. */
	prctl(PR_SET_PDEATHSIG, SIGKILL);
}

struct actor actor_start(int partition, const char *name, ...)
{
	struct actor actor = { .name = name, .partition = NOBODY };
	char *arguments[MAX_ARGUMENTS + 1] = { NULL };
	int ends[2], i;
	va_list ap;

	va_start(ap, name);
	for (i = 0; i < MAX_ARGUMENTS && (arguments[i] = va_arg(ap, char *)); i++)
		;
	va_end(ap);

	OK(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends));
	actor.pid = OK(fork());
	if (!actor.pid) {
		child_of_test();
		OK(dup2(ends[1], ACTOR_FD));
		if (partition != NOBODY)
			exec_inside(partition, name, arguments);
		exec_body(name, arguments);
	}
	close(ends[1]);
	actor.fd = ends[0];
	/* The first message is the harness's own: the execve() is over, and where it led. */
	actor.partition = atoi(actor_hear(&actor));
	ASSERT((actor.partition == NOBODY) == (partition == NOBODY), "%s is in partition %d",
	       name, actor.partition);
	return actor;
}

void actor_tell(struct actor *actor, const char *fmt, ...)
{
	char text[MESSAGE_BYTES];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	ASSERT(send(actor->fd, text, strlen(text) + 1, MSG_NOSIGNAL) > 0, "%s: %m", actor->name);
}

const char *actor_hear(struct actor *actor)
{
	static char text[MESSAGE_BYTES];
	int status;
	ssize_t got;

	do {
		got = recv(actor->fd, text, sizeof(text) - 1, 0);
	} while (got < 0 && errno == EINTR);
	if (got <= 0) {
		status = actor_wait(actor);
		if (WIFEXITED(status) && WEXITSTATUS(status) == TEST_SKIP)
			_exit(TEST_SKIP);
		FAIL("%s ended early (wait status %#x)", actor->name, status);
	}
	text[got] = 0;
	return text;
}

int actor_receive_fd(struct actor *actor)
{
	char byte, control[CMSG_SPACE(sizeof(int))];
	struct iovec iov = { &byte, 1 };
	struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control,
			      .msg_controllen = sizeof(control) };
	int fd;

	ASSERT(recvmsg(actor->fd, &msg, 0) == 1 && CMSG_FIRSTHDR(&msg),
	       "%s sent no descriptor: %m", actor->name);
	memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&msg)), sizeof(fd));
	return fd;
}

void send_fd(int fd)
{
	char byte = 0, control[CMSG_SPACE(sizeof(int))] = { 0 };
	struct iovec iov = { &byte, 1 };
	struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control,
			      .msg_controllen = sizeof(control) };
	struct cmsghdr *header = CMSG_FIRSTHDR(&msg);

	header->cmsg_level = SOL_SOCKET;
	header->cmsg_type = SCM_RIGHTS;
	header->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(header), &fd, sizeof(fd));
	OK(sendmsg(ACTOR_FD, &msg, MSG_NOSIGNAL));
}

void tell(const char *fmt, ...)
{
	char text[MESSAGE_BYTES];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	ASSERT(send(ACTOR_FD, text, strlen(text) + 1, MSG_NOSIGNAL) > 0, "tell: %m");
}

const char *hear(void)
{
	static char text[MESSAGE_BYTES];
	ssize_t got = recv(ACTOR_FD, text, sizeof(text) - 1, 0);

	/* Whoever started us is gone: nothing is left to do. */
	if (got <= 0)
		_exit(TEST_FAIL);
	text[got] = 0;
	return text;
}

int actor_wait(struct actor *actor)
{
	int status;

	while (waitpid(actor->pid, &status, 0) < 0)
		ASSERT(errno == EINTR, "waitpid %s: %m", actor->name);
	close(actor->fd);
	return status;
}

void actor_join(struct actor *actor)
{
	int status = actor_wait(actor);

	if (WIFEXITED(status) && WEXITSTATUS(status) == TEST_SKIP)
		_exit(TEST_SKIP);
	ASSERT(status == 0, "%s: wait status %#x", actor->name, status);
}

void actor_kill(struct actor *actor)
{
	kill(actor->pid, SIGKILL);
	actor_wait(actor);
}

bool actor_alive(struct actor *actor)
{
	siginfo_t info = { 0 };

	return !waitid(P_PID, actor->pid, &info, WEXITED | WNOHANG | WNOWAIT) && !info.si_pid;
}

int in_child(void (*fn)(void *), void *data)
{
	int status;
	pid_t pid = OK(fork());

	if (!pid) {
		child_of_test();
		fn(data);
		_exit(TEST_PASS);
	}
	while (waitpid(pid, &status, 0) < 0)
		ASSERT(errno == EINTR, "waitpid: %m");
	return status;
}

void in_child_ok(void (*fn)(void *), void *data)
{
	int status = in_child(fn, data);

	if (WIFEXITED(status) && WEXITSTATUS(status) != TEST_PASS)
		_exit(WEXITSTATUS(status));
	ASSERT(status == 0, "child: wait status %#x", status);
}

/* Runs one test in a session of its own; its exit code, TEST_FAIL when it had to be killed. */
static int run_test(struct body *test)
{
	unsigned int seconds = test->seconds ? test->seconds : DEFAULT_SECONDS;
	u64 end = now_ms() + seconds * 1000ull * slowness();
	pid_t pid = fork();
	int status = 0;

	if (!pid) {
		setsid();
		child_of_test();
		if (test->kind == BODY_TEST_INSIDE) {
			require_partitions();
			exec_inside(ANY, test->name, NULL);
		}
		test->fn(0, NULL);
		_exit(TEST_PASS);
	}
	if (pid < 0) {
		note("fork: %m");
		return TEST_FAIL;
	}
	while (waitpid(pid, &status, WNOHANG) == 0) {
		if (now_ms() > end) {
			note("%s did not end within %u s", test->name, seconds);
			kill(-pid, SIGKILL);
			waitpid(pid, &status, 0);
			return TEST_FAIL;
		}
		sleep_ms(2);
	}
	/* What it left behind must not disturb the next test. */
	kill(-pid, SIGKILL);
	if (WIFSIGNALED(status)) {
		note("%s was killed by signal %d", test->name, WTERMSIG(status));
		return TEST_FAIL;
	}
	return WEXITSTATUS(status);
}

static int run_tests(int argc, char **argv)
{
	int count = 0, number = 0, failed = 0, passed = 0, result, i;
	struct body *body;
	bool wanted;

	for (body = bodies; body; body = body->next)
		count += body->kind <= BODY_TEST_INSIDE;
	say("TAP version 13");
	if (argc < 2)
		say("1..%d", count);
	for (body = bodies; body; body = body->next) {
		u64 start = now_ms();

		if (body->kind > BODY_TEST_INSIDE)
			continue;
		for (wanted = argc < 2, i = 1; i < argc; i++)
			wanted |= !strcmp(argv[i], body->name);
		if (!wanted)
			continue;
		result = run_test(body);
		/* Every rule ends with this one: nobody is left in any partition. */
		if (!body->leaves_partitions && !settle() && result != TEST_FAIL) {
			note("%s left partitions in use", body->name);
			result = TEST_FAIL;
		}
		failed += result == TEST_FAIL;
		passed += result == TEST_PASS;
		say("%s %d - %s%s # time=%llums", result == TEST_FAIL ? "not ok" : "ok", ++number,
		    body->name, result == TEST_SKIP ? " # SKIP see above" : "",
		    (now_ms() - start));
	}
	if (argc >= 2)
		say("1..%d", number);
	return failed ? TEST_FAIL : passed ? TEST_PASS : TEST_SKIP;
}

int main(int argc, char **argv)
{
	struct body *body;

	signal(SIGPIPE, SIG_IGN);
	if (argc >= 3 && !strcmp(argv[1], "--body")) {
		long own = squeezy_get(0);

		body = find_body(argv[2]);
		if (!body)
			FAIL("no body %s", argv[2]);
		child_of_test();
		if (body->kind == BODY_ACTOR)
			tell("%ld", own < 0 ? NOBODY : own);
		body->fn(argc - 3, argv + 3);
		return TEST_PASS;
	}
	return run_tests(argc, argv);
}
