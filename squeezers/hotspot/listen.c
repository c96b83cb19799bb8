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

static struct sockaddr_un address;
static struct stat made;

static int fail(const char *path, const char *why)
{
	fprintf(stderr, "squeezer: no socket at %s: %s; the process goes on without it\n", path, why);
	return -1;
}

/* Whether a living process listens there. A full backlog (EAGAIN) is one that lives. */
static bool answers(void)
{
	int client = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	bool refused;

	if (client < 0)
		return true;
	refused = connect(client, (struct sockaddr *)&address, sizeof(address)) && errno == ECONNREFUSED;
	close(client);
	return !refused;
}

/* NULL when the path is free now, or why it is not. */
static const char *make_room(void)
{
	struct stat there;

	if (lstat(address.sun_path, &there))
		return errno == ENOENT ? NULL : strerror(errno);
	if (!S_ISSOCK(there.st_mode))
		return "there is a file that is no socket";
	if (answers())
		return "another process listens there: set SQUEEZER_SOCKET to another path";
	return unlink(address.sun_path) && errno != ENOENT ? strerror(errno) : NULL;
}

int listen_open(void)
{
	const char *path = getenv("SQUEEZER_SOCKET");
	char path_of_process[64];
	const char *obstacle;
	int listener;

	if (!path || !*path) {
		snprintf(path_of_process, sizeof(path_of_process), "/tmp/squeezer-%d.sock", (int)getpid());
		path = path_of_process;
	}
	if (strlen(path) >= sizeof(address.sun_path))
		return fail(path, "the path is too long: at most 107 bytes");
	address.sun_family = AF_UNIX;
	strcpy(address.sun_path, path);
	obstacle = make_room();
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

void listen_remove(void)
{
	struct stat there;

	if (made.st_ino && !lstat(address.sun_path, &there) && there.st_dev == made.st_dev &&
	    there.st_ino == made.st_ino)
		unlink(address.sun_path);
}
