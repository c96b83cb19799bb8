// SPDX-License-Identifier: GPL-2.0
/* See harness.h. */
#define _GNU_SOURCE
#include "harness.h"

#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static struct body *bodies;
static struct body **last_body = &bodies;
static const char *(*find_leak)(void);

void register_body(struct body *body)
{
	*last_body = body;
	last_body = &body->next;
}

void check_for_leaks(const char *(*find)(void))
{
	find_leak = find;
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

/* What one pause counts for at most, with the look before it. */
#define MOST_PAUSE_MS	50

void pause_between_looks(u64 *left, u64 *last)
{
	u64 now, passed;

	sleep_ms(2);
	now = now_ms();
	passed = now - *last < MOST_PAUSE_MS ? now - *last : MOST_PAUSE_MS;
	*left -= passed < *left ? passed : *left;
	*last = now;
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

/* A test that fails leaves without tidying up: its children go with it. */
static void die_with_parent(void)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
}

pid_t fork_child(void)
{
	pid_t parent = getpid(), pid = OK(fork());

	if (!pid) {
		die_with_parent();
		/* It may have been killed before that. */
		if (getppid() != parent)
			_exit(TEST_FAIL);
	}
	return pid;
}

int in_child(void (*fn)(void *), void *data)
{
	int status;
	pid_t pid = fork_child();

	if (!pid) {
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

void close_fd(void *fd)
{
	close(*(int *)fd);
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
		die_with_parent();
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
	const char *leak;
	struct body *body;
	bool wanted;

	for (body = bodies; body; body = body->next)
		count += body->is_test;
	say("TAP version 13");
	if (argc < 2)
		say("1..%d", count);
	for (body = bodies; body; body = body->next) {
		u64 start = now_ms();

		if (!body->is_test)
			continue;
		for (wanted = argc < 2, i = 1; i < argc; i++)
			wanted |= !strcmp(argv[i], body->name);
		if (!wanted)
			continue;
		result = run_test(body);
		leak = find_leak && !body->may_leak ? find_leak() : NULL;
		if (leak && result != TEST_FAIL) {
			note("%s left %s", body->name, leak);
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
		body = find_body(argv[2]);
		if (!body)
			FAIL("no body %s", argv[2]);
		die_with_parent();
		body->fn(argc - 3, argv + 3);
		return TEST_PASS;
	}
	return run_tests(argc, argv);
}
