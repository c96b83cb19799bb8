// SPDX-License-Identifier: GPL-2.0
/* See actor.h. */
#define _GNU_SOURCE
#include "actor.h"

#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define MESSAGE_BYTES	256

/* Every rule ends with this one: nobody is left in any partition. */
static const char *used_partitions(void)
{
	return settle() ? NULL : "partitions in use";
}

static __attribute__((constructor)) void watch_partitions(void)
{
	check_for_leaks(used_partitions);
}

void exec_inside(int partition, const char *name, char *const arguments[])
{
	/* Who has it may be about to read and write all of it. */
	long got = squeezy_assign(partition, 30000 * slowness());

	ASSERT(got >= 0, "assign %d: %m", partition);
	exec_body(name, arguments);
}

static void exec_beside(pid_t pid, const char *name, char *const arguments[])
{
	long got = squeezy_join(pid);

	ASSERT(got >= 0, "join %d: %m", pid);
	exec_body(name, arguments);
}

/* In @partition, or beside @pid if that is not 0. */
static struct actor start(int partition, pid_t pid, const char *name, va_list ap)
{
	struct actor actor = { .name = name, .partition = NOBODY };
	char *arguments[MAX_ARGUMENTS + 1] = { NULL };
	int ends[2], i;

	for (i = 0; i < MAX_ARGUMENTS && (arguments[i] = va_arg(ap, char *)); i++)
		;

	OK(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends));
	actor.pid = fork_child();
	if (!actor.pid) {
		OK(dup2(ends[1], ACTOR_FD));
		if (pid)
			exec_beside(pid, name, arguments);
		if (partition != NOBODY)
			exec_inside(partition, name, arguments);
		exec_body(name, arguments);
	}
	close(ends[1]);
	actor.fd = ends[0];
	/* The first message is that of actor_enter(): the execve() is over, and where it led. */
	actor.partition = atoi(actor_hear(&actor));
	ASSERT((actor.partition == NOBODY) == (partition == NOBODY), "%s is in partition %d",
	       name, actor.partition);
	return actor;
}

struct actor actor_start(int partition, const char *name, ...)
{
	struct actor actor;
	va_list ap;

	va_start(ap, name);
	actor = start(partition, 0, name, ap);
	va_end(ap);
	return actor;
}

struct actor actor_start_beside(pid_t pid, const char *name, ...)
{
	struct actor actor;
	va_list ap;

	va_start(ap, name);
	actor = start(ANY, pid, name, ap);
	va_end(ap);
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

void actor_join_killed(struct actor *actor)
{
	int status = actor_wait(actor);

	ASSERT_KILLED(status, actor->name);
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

void actor_enter(void)
{
	long own = squeezy_get(0);

	tell("%ld", own < 0 ? NOBODY : own);
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

void send_fd_over(int socket, int fd)
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
	OK(sendmsg(socket, &msg, MSG_NOSIGNAL));
}

void send_fd(int fd)
{
	send_fd_over(ACTOR_FD, fd);
}
