// SPDX-License-Identifier: GPL-2.0
/* See sent.h. */
#define _GNU_SOURCE
#include "sent.h"
#include "actor.h"
#include "memfile.h"
#include "memory.h"
#include "system.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#ifndef SO_ZEROCOPY
#define SO_ZEROCOPY 60
#endif
#ifndef MSG_ZEROCOPY
#define MSG_ZEROCOPY 0x4000000
#endif

/* Most of it waits at the sender: before it is read, the receiver takes a quarter at most. */
#define SENT_BYTES	MIB
#define RECEIVER_BYTES	(128 * KIB)
#define SENDER_BYTES	(4 * MIB)
/* What a pipe holds. */
#define PIPE_BYTES	(16 * PAGE)
#define SEED		0x5eed000000000000ull

/* What is freed late is freed by the processor that has sent it: another one receives. */
#define SENDER_PROCESSOR	1
#define RECEIVER_PROCESSOR	0

static void run_on(int processor)
{
	cpu_set_t only;

	CPU_ZERO(&only);
	CPU_SET(processor, &only);
	OK(sched_setaffinity(0, sizeof(only), &only));
}

static void set_option(int socket, int option, int value)
{
	OK(setsockopt(socket, SOL_SOCKET, option, &value, sizeof(value)));
}

struct connection {
	int sender, receiver;
};

static struct connection make_connection(void)
{
	struct sockaddr_in address = { .sin_family = AF_INET,
				       .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t length = sizeof(address);
	struct connection made;
	int listener;

	run_on(SENDER_PROCESSOR);
	bring_loopback_up();
	listener = OK(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
	set_option(listener, SO_RCVBUF, RECEIVER_BYTES);
	OK(bind(listener, (struct sockaddr *)&address, sizeof(address)));
	OK(listen(listener, 1));
	OK(getsockname(listener, (struct sockaddr *)&address, &length));
	made.sender = OK(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
	set_option(made.sender, SO_SNDBUFFORCE, SENDER_BYTES);
	OK(connect(made.sender, (struct sockaddr *)&address, sizeof(address)));
	made.receiver = OK(accept(listener, NULL, NULL));
	close(listener);
	return made;
}

static void write_words(u64 *words)
{
	u64 i;

	for (i = 0; i < SENT_BYTES / sizeof(*words); i++)
		words[i] = SEED + i;
}

/* The pages stay where they are until they are received, whether the actor is killed or not. */
static void pass_on(int receiver)
{
	send_fd(receiver);
	close(receiver);
	tell("sent");
	hear();
}

ACTOR(sends_memory)
{
	struct connection connection = make_connection();
	void *memory = map_anon(SENT_BYTES);

	write_words(memory);
	set_option(connection.sender, SO_ZEROCOPY, 1);
	ASSERT_EQ(send(connection.sender, memory, SENT_BYTES, MSG_ZEROCOPY | MSG_DONTWAIT),
		  SENT_BYTES);
	pass_on(connection.receiver);
}

ACTOR(sends_memory_through_a_pipe)
{
	struct connection connection = make_connection();
	char *memory = map_anon(SENT_BYTES);
	int ends[2];
	u64 at;

	write_words((u64 *)memory);
	OK(pipe(ends));
	for (at = 0; at < SENT_BYTES; at += PIPE_BYTES) {
		struct iovec piece = { memory + at, PIPE_BYTES };

		ASSERT_EQ(vmsplice(ends[1], &piece, 1, 0), PIPE_BYTES);
		ASSERT_EQ(splice(ends[0], NULL, connection.sender, NULL, PIPE_BYTES, 0),
			  PIPE_BYTES);
	}
	pass_on(connection.receiver);
}

ACTOR(sends_a_file)
{
	struct connection connection = make_connection();
	int file = OK(memfd_create("sent", MFD_CLOEXEC));
	char *memory = map_file(file, SENT_BYTES);
	off_t offset = 0;

	write_words((u64 *)memory);
	OK(munmap(memory, SENT_BYTES));
	ASSERT_EQ(sendfile(connection.sender, file, &offset, SENT_BYTES), SENT_BYTES);
	pass_on(connection.receiver);
}

void receive_sent(int receiver)
{
	static u64 words[64 * KIB / sizeof(u64)];
	u64 at, i;

	/* As the agent has it: what was received is freed at once. */
	ASSERT(write_text("/proc/sys/net/core/skb_defer_max", "0"), "skb_defer_max: %m");
	run_on(RECEIVER_PROCESSOR);
	for (at = 0; at < SENT_BYTES; at += sizeof(words)) {
		ASSERT_EQ(recv(receiver, words, sizeof(words), MSG_WAITALL), sizeof(words));
		for (i = 0; i < sizeof(words) / sizeof(*words); i++)
			ASSERT(words[i] == SEED + at / sizeof(*words) + i, "%#llx at %llu",
			       words[i], at + i * sizeof(*words));
	}
}
