// SPDX-License-Identifier: Apache-2.0 OR MIT
#include "listen.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

/* Clients that wait for their turn. */
#define BACKLOG 16

static const char another_listens[] = "another process listens there: set SQUEEZER_SOCKET to another path";

static struct sockaddr_un address;
static struct stat made;

static int fail(const char *path, const char *why)
{
	fprintf(stderr, "squeezer: no socket at %s: %s; the process goes on without it\n", path, why);
	return -1;
}

/* The process that listens there: 0 if it is unknown, as with a full backlog (EAGAIN); -1 if nobody listens. */
static pid_t find_listener(void)
{
	int client = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	struct ucred peer = {0};
	socklen_t size = sizeof(peer);

	if (client < 0)
		return 0;
	if (!connect(client, (struct sockaddr *)&address, sizeof(address)))
		getsockopt(client, SOL_SOCKET, SO_PEERCRED, &peer, &size);
	else if (errno == ECONNREFUSED)
		peer.pid = -1;
	close(client);
	return peer.pid;
}

/* NULL when the path is free now, or why it is not. */
static const char *make_room(void)
{
	struct stat there;
	pid_t process;

	if (lstat(address.sun_path, &there))
		return errno == ENOENT ? NULL : strerror(errno);
	if (!S_ISSOCK(there.st_mode))
		return "there is a file that is no socket";
	process = find_listener();
	/* Another copy of the agent: each would take the flags that the other has changed for the JVM's own. */
	if (process == getpid())
		return "a squeezer of this process listens there";
	if (process >= 0)
		return another_listens;
	return unlink(address.sun_path) && errno != ENOENT ? strerror(errno) : NULL;
}

/*
 * Listens at this path. Negative if it cannot: `taken`, if there is one, is then set where another process
 * listens there, and standard error says why in all other cases.
 */
static int listen_at(const char *path, bool *taken)
{
	const char *obstacle;
	int listener;

	if (*path != '/')
		return fail(path, "the path is not absolute");
	if (strlen(path) >= sizeof(address.sun_path))
		return fail(path, "the path is too long: at most 107 bytes");
	address.sun_family = AF_UNIX;
	strcpy(address.sun_path, path);
	obstacle = make_room();
	if (obstacle == another_listens && taken) {
		*taken = true;
		return -1;
	}
	if (obstacle)
		return fail(path, obstacle);
	listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	/*
	 * The file gets the mode that the socket has: there is no moment in which others could connect, and
	 * no umask to change, which would be everybody's in this process.
	 */
	if (listener < 0 || fchmod(listener, 0600) ||
	    bind(listener, (struct sockaddr *)&address, sizeof(address)) || lstat(path, &made) ||
	    listen(listener, BACKLOG)) {
		fail(path, strerror(errno));
		if (listener >= 0)
			close(listener);
		return -1;
	}
	return listener;
}

int listen_open(void)
{
	const char *named = getenv("SQUEEZER_SOCKET");
	char path_of_process[64];

	if (named && *named) {
		bool taken = false;
		int listener = listen_at(named, &taken);

		/* A child of a process with a squeezer has inherited the variable. */
		if (!taken)
			return listener;
	}
	snprintf(path_of_process, sizeof(path_of_process), "/tmp/squeezer-%d.sock", (int)getpid());
	return listen_at(path_of_process, NULL);
}

void listen_remove(void)
{
	struct stat there;

	if (made.st_ino && !lstat(address.sun_path, &there) && there.st_dev == made.st_dev &&
	    there.st_ino == made.st_ino)
		unlink(address.sun_path);
}
