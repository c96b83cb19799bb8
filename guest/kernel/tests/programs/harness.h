/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A small harness in the manner of kselftest_harness.h: every TEST() runs in a process (and a
 * session) of its own with a time limit, and its outcome is one TAP line.
 *
 * What sets it apart is that a test of partitions must execve() to get into one. So a program can
 * run itself again: TEST_INSIDE() is a test whose body runs in a partition, and an ACTOR() is a
 * body that another process starts, inside or outside, and steps through with messages.
 */
#ifndef SQUEEZY_TEST_HARNESS_H
#define SQUEEZY_TEST_HARNESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

typedef unsigned long long u64;

/* Exit codes, those of kselftest. */
#define TEST_PASS 0
#define TEST_FAIL 1
#define TEST_SKIP 4

struct body {
	const char *name;
	void (*fn)(int argc, char **argv);
	enum { BODY_TEST, BODY_TEST_INSIDE, BODY_ACTOR, BODY_PLAIN } kind;
	unsigned int seconds;		/* time limit; 0: DEFAULT_SECONDS */
	bool leaves_partitions;		/* may leave partitions that are not free */
	struct body *next;
};

#define DEFAULT_SECONDS 60

void register_body(struct body *body);

#define BODY(id, kind_, ...)							\
	static void id(int argc, char **argv);					\
	static struct body id##_body = {					\
		.name = #id, .fn = id, .kind = kind_, __VA_ARGS__ };		\
	static __attribute__((constructor)) void id##_register(void)		\
	{									\
		register_body(&id##_body);					\
	}									\
	static void id(int argc __attribute__((unused)),			\
		       char **argv __attribute__((unused)))

#define TEST(id, ...)		BODY(id, BODY_TEST, __VA_ARGS__)
#define TEST_INSIDE(id, ...)	BODY(id, BODY_TEST_INSIDE, __VA_ARGS__)
#define ACTOR(id, ...)		BODY(id, BODY_ACTOR, __VA_ARGS__)
/* As an actor, but nobody listens: for whatever else executes this program. */
#define PLAIN(id, ...)		BODY(id, BODY_PLAIN, __VA_ARGS__)

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

/* A process that runs an ACTOR() and talks with whoever started it. */
struct actor {
	const char *name;
	pid_t pid;
	int fd;			/* one end of a socket pair; the actor's is ACTOR_FD */
	int partition;		/* the number it got, NOBODY without */
};

/* Beyond what a test with an actor in each of 128 partitions opens by itself. */
#define ACTOR_FD	900
#define ANY		(-1)
#define NOBODY		(-2)	/* no partition */
#define MESSAGE_BYTES	256

/* Starts @name in @partition (a number, ANY or NOBODY) with up to four arguments. */
struct actor actor_start(int partition, const char *name, ...) __attribute__((sentinel));
/* Sends one message to the actor. */
void actor_tell(struct actor *actor, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Waits for one message from the actor; fails when it ends instead. */
const char *actor_hear(struct actor *actor);
/* Passes a file descriptor from an actor. */
int actor_receive_fd(struct actor *actor);
/* Waits for its end: the wait status. */
int actor_wait(struct actor *actor);
/* Waits for its end, which must be an exit with status 0. */
void actor_join(struct actor *actor);
/* Ends it with SIGKILL and reaps it. */
void actor_kill(struct actor *actor);
bool actor_alive(struct actor *actor);

/* In an actor: the other side of the same. */
void tell(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
const char *hear(void);
void send_fd(int fd);

/* Assigns the caller to @partition and executes this program again as @name; never returns. */
void exec_inside(int partition, const char *name, char *const arguments[])
	__attribute__((noreturn));
/* Executes this program again as @name; never returns. */
void exec_body(const char *name, char *const arguments[]) __attribute__((noreturn));
/* Forks and waits for a child that runs @fn; the wait status. */
int in_child(void (*fn)(void *), void *data);
/* The same for a child that must return TEST_PASS; its skips and failures are passed on. */
void in_child_ok(void (*fn)(void *), void *data);

/* How many times slower than usual the guest is: SELFTEST_SLOWNESS, 1 without. */
unsigned int slowness(void);
u64 now_ms(void);
void sleep_ms(unsigned int ms);

/* Evaluates @cond every few milliseconds until it holds; false after @ms of a usual guest. */
#define WAIT_FOR(cond, ms)							\
	({									\
		u64 end_ = now_ms() + (u64)(ms) * slowness();		\
		bool held_;							\
										\
		while (!(held_ = (cond)) && now_ms() < end_)			\
			sleep_ms(2);						\
		held_;								\
	})

#endif
