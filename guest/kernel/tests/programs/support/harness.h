/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A small harness in the manner of kselftest_harness.h: every TEST() runs in a process (and a
 * session) of its own with a time limit, and its outcome is one TAP line. A program can execute
 * itself again, as one of its BODY()s.
 *
 * It knows nothing of partitions: see actor.h for tests that run in them.
 */
#ifndef SQUEEZY_TEST_HARNESS_H
#define SQUEEZY_TEST_HARNESS_H

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>
#include <sys/wait.h>

typedef unsigned long long u64;

/* Exit codes, those of kselftest. */
#define TEST_PASS 0
#define TEST_FAIL 1
#define TEST_SKIP 4

struct body {
	const char *name;
	void (*fn)(int argc, char **argv);
	bool is_test;
	unsigned int seconds;		/* time limit; 0: DEFAULT_SECONDS */
	bool may_leak;			/* no check_for_leaks() after it */
	struct body *next;
};

/* For what never ends, on the slowest machine. */
#define DEFAULT_SECONDS 120

void register_body(struct body *body);

#define DEFINE_BODY(id, ...)							\
	static void id(int argc, char **argv);					\
	static struct body id##_body = { .name = #id, .fn = id, __VA_ARGS__ };	\
	static __attribute__((constructor)) void id##_register(void)		\
	{									\
		register_body(&id##_body);					\
	}									\
	static void id(int argc __attribute__((unused)),			\
		       char **argv __attribute__((unused)))

#define TEST(id, ...)	DEFINE_BODY(id, .is_test = true, __VA_ARGS__)
/* What the program is when it is executed with this name. */
#define BODY(id)	DEFINE_BODY(id)

/* Has @find called after each test: what the test has left behind, or NULL for nothing. */
void check_for_leaks(const char *(*find)(void));

/* Prints a diagnostic line. */
void note(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

void fail_at(const char *file, int line, const char *fmt, ...)
	__attribute__((noreturn, format(printf, 3, 4)));
void skip(const char *fmt, ...) __attribute__((noreturn, format(printf, 1, 2)));

#define FAIL(...)	fail_at(__FILE_NAME__, __LINE__, __VA_ARGS__)
#define ASSERT(cond, fmt, ...)							\
	do {									\
		if (!(cond))							\
			fail_at(__FILE_NAME__, __LINE__, "%s: " fmt, #cond,		\
				##__VA_ARGS__);					\
	} while (0)

#define ASSERT_OP(a, op, b)							\
	do {									\
		long long a_ = (long long)(a), b_ = (long long)(b);		\
										\
		if (!(a_ op b_))						\
			fail_at(__FILE_NAME__, __LINE__, "%s: %lld, %lld",		\
				#a " " #op " " #b, a_, b_);			\
	} while (0)

#define ASSERT_EQ(a, b)	ASSERT_OP(a, ==, b)
#define ASSERT_GE(a, b)	ASSERT_OP(a, >=, b)
#define ASSERT_LE(a, b)	ASSERT_OP(a, <=, b)

/* A wait status: @who must have been killed by SIGKILL. */
#define ASSERT_KILLED(status, who)						\
	ASSERT(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL, "%s: wait status %#x",	\
	       (who), (status))

/* A system call that must succeed; its value. */
#define OK(call)								\
	({									\
		long ok_ = (long)(call);					\
										\
		if (ok_ == -1)							\
			fail_at(__FILE_NAME__, __LINE__, "%s: %m", #call);		\
		ok_;								\
	})

/* A system call that must fail with this errno. */
#define ASSERT_ERRNO(call, want)						\
	do {									\
		long got_;							\
										\
		errno = 0;							\
		got_ = (long)(call);						\
		if (got_ != -1 || errno != (want))				\
			fail_at(__FILE_NAME__, __LINE__, "%s: %ld, %m, expected %s",	\
				#call, got_, #want);				\
	} while (0)

#define MAX_ARGUMENTS 8

/* Executes this program again as @name, with up to MAX_ARGUMENTS; never returns. */
void exec_body(const char *name, char *const arguments[]) __attribute__((noreturn));

/* fork(2), which must succeed; the child ends with the caller. */
pid_t fork_child(void);
/* Forks and waits for a child that runs @fn; the wait status. */
int in_child(void (*fn)(void *), void *data);
/* The same for a child that must return TEST_PASS; its skips and failures are passed on. */
void in_child_ok(void (*fn)(void *), void *data);

/* For functions that take a function: closes the file descriptor at @fd. */
void close_fd(void *fd);

/* How many times slower than usual the guest is: SELFTEST_SLOWNESS, 1 without. */
unsigned int slowness(void);
u64 now_ms(void);
void sleep_ms(unsigned int ms);

/* Pauses, and takes the milliseconds since @last off those that are @left. */
void pause_between_looks(u64 *left, u64 *last);

/*
 * Evaluates @cond every few milliseconds until it holds; false after @ms of a usual guest. Time in
 * which the host lets none of its processors run does not count: nothing comes true in it.
 */
#define WAIT_FOR(cond, ms)							\
	({									\
		u64 left_ = (u64)(ms) * slowness(), last_ = now_ms();		\
		bool held_;							\
										\
		while (!(held_ = (cond)) && left_)				\
			pause_between_looks(&left_, &last_);			\
		held_;								\
	})

/* What is event-driven has happened by then, even on a slow machine. */
#define PROMPT_MS	3000

#endif
