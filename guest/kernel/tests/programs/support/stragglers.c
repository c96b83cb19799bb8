// SPDX-License-Identifier: GPL-2.0
/* See stragglers.h. */
#define _GNU_SOURCE
#include "stragglers.h"
#include "actor.h"
#include "memory.h"

#include <fcntl.h>
#include <sys/uio.h>
#include <unistd.h>

ACTOR(leaves_pages_in_a_pipe)
{
	char *memory = map_anon(STRAGGLERS * PAGE);
	struct iovec iov = { memory, STRAGGLERS * PAGE };
	int ends[2];

	OK(pipe(ends));
	OK(fcntl(ends[1], F_SETPIPE_SZ, 64 * PAGE));
	fill(memory, STRAGGLERS * PAGE, 1);
	ASSERT_EQ(vmsplice(ends[1], &iov, 1, 0), STRAGGLERS * PAGE);
	send_fd(ends[0]);
	hear();
}

struct stragglers leave_stragglers(int partition)
{
	struct actor actor = actor_start(partition, "leaves_pages_in_a_pipe", NULL);
	struct stragglers left = { .partition = actor.partition };

	left.pipe = actor_receive_fd(&actor);
	actor_kill(&actor);
	return left;
}

void read_stragglers(const struct stragglers *left)
{
	static char text[STRAGGLERS * PAGE];
	size_t got = 0;

	while (got < sizeof(text))
		got += OK(read(left->pipe, text + got, sizeof(text) - got));
}
