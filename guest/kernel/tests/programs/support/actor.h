/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Processes in partitions, which they get into with an execve(2) only: TEST_INSIDE() is a test
 * whose body runs in a partition, and an ACTOR() is a body that another process starts, inside or
 * outside, and steps through with messages.
 */
#ifndef SQUEEZY_TEST_ACTOR_H
#define SQUEEZY_TEST_ACTOR_H

#include "harness.h"
#include "squeezy.h"

/* A test that executes this program again in a partition, as the body that follows. */
#define TEST_INSIDE(id, ...)							\
	static void id##_inside(int argc, char **argv);				\
	TEST(id, __VA_ARGS__)							\
	{									\
		require_partitions();						\
		exec_inside(ANY, #id "_inside", NULL);				\
	}									\
	BODY(id##_inside)

/* The body of a process that actor_start() starts. */
#define ACTOR(id)								\
	static void id##_acts(int argc, char **argv);				\
	BODY(id)								\
	{									\
		actor_enter();							\
		id##_acts(argc, argv);						\
	}									\
	static void id##_acts(int argc __attribute__((unused)),		\
			      char **argv __attribute__((unused)))

/* A process that runs an ACTOR() and talks with whoever started it. */
struct actor {
	const char *name;
	pid_t pid;
	int fd;			/* one end of a socket pair; the actor's is ACTOR_FD */
	int partition;		/* the number it got, NOBODY without */
};

/* Beyond what a test with an actor in each of 128 partitions opens by itself. */
#define ACTOR_FD	900
#define NOBODY		(-2)	/* no partition */

/* Starts @name in @partition (a number, ANY or NOBODY) with up to MAX_ARGUMENTS arguments. */
struct actor actor_start(int partition, const char *name, ...) __attribute__((sentinel));
/* Starts @name in the partition of process @pid, beside what is there. */
struct actor actor_start_beside(pid_t pid, const char *name, ...) __attribute__((sentinel));
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
/* Waits for its end, which must be a kill by somebody else. */
void actor_join_killed(struct actor *actor);
/* Ends it with SIGKILL and reaps it. */
void actor_kill(struct actor *actor);
bool actor_alive(struct actor *actor);

/* In an actor: the first thing it does, and the other side of the same. */
void actor_enter(void);
void tell(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
const char *hear(void);
void send_fd(int fd);
/* The same over a socket of its own. */
void send_fd_over(int socket, int fd);

/* Assigns the caller to @partition and executes this program again as @name; never returns. */
void exec_inside(int partition, const char *name, char *const arguments[])
	__attribute__((noreturn));

#endif
