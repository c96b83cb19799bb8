// SPDX-License-Identifier: Apache-2.0 OR MIT
#include "serve.h"
#include "answer.h"
#include "squeeze.h"
#include "request.h"

#include <errno.h>
#include <poll.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

/* What a client has for each line, to send it and to take it. */
#define LINE_SECONDS 5

struct client {
	int socket;
	/* What was received: of the line that is being read, and of those behind it. */
	char bytes[REQUEST_MOST_BYTES + 1];
	size_t length;
};

static int64_t now_ms(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return (int64_t)time.tv_sec * 1000 + time.tv_nsec / 1000000;
}

static bool send_line(const struct client *client, const char *line, size_t length)
{
	while (length > 0) {
		/* The socket has a timeout for this. */
		ssize_t sent = send(client->socket, line, length, MSG_NOSIGNAL);

		if (sent < 0 && errno == EINTR)
			continue;
		if (sent <= 0)
			return false;
		line += sent;
		length -= (size_t)sent;
	}
	return true;
}

static bool send_answer(const struct client *client, const struct answer *answer)
{
	char line[ANSWER_MOST_BYTES];

	return send_line(client, line, answer_result(answer, line));
}

/* More bytes from the client. False when it is gone, or was silent until the deadline. */
static bool receive(struct client *client, int64_t deadline_ms)
{
	for (;;) {
		int64_t left_ms = deadline_ms - now_ms();
		struct pollfd ready = {.fd = client->socket, .events = POLLIN};
		ssize_t received;

		if (left_ms > 0 && poll(&ready, 1, (int)left_ms) < 0 && errno != EINTR)
			return false;
		/* Also after the deadline: the process may have been frozen, with the line there all the time. */
		received = recv(client->socket, client->bytes + client->length, sizeof(client->bytes) - client->length,
				MSG_DONTWAIT);
		if (received > 0) {
			client->length += (size_t)received;
			return true;
		}
		if (received == 0 || left_ms <= 0 || (errno != EAGAIN && errno != EINTR))
			return false;
	}
}

enum line { LINE_READ, LINE_TOO_LONG, LINE_NONE };

/* The next line is at the start of the client's bytes; its length is without its newline. */
static enum line read_line(struct client *client, size_t *length)
{
	const int64_t deadline_ms = now_ms() + LINE_SECONDS * 1000;

	for (;;) {
		const char *newline = memchr(client->bytes, '\n', client->length);

		if (newline) {
			*length = (size_t)(newline - client->bytes);
			return LINE_READ;
		}
		if (client->length == sizeof(client->bytes))
			return LINE_TOO_LONG;
		if (!receive(client, deadline_ms))
			return LINE_NONE;
	}
}

static void drop_line(struct client *client, size_t length)
{
	client->length -= length + 1;
	memmove(client->bytes, client->bytes + length + 1, client->length);
}

/* Answers the next request. False when the connection is to be closed. */
static bool serve_request(struct client *client, jvmtiEnv *jvmti, const struct runtime *runtime)
{
	struct answer answer = {0};
	struct request request;
	bool valid = false;
	size_t length;

	switch (read_line(client, &length)) {
	case LINE_NONE:
		return false;
	case LINE_TOO_LONG:
		answer.error = "the request is too long: at most 4096 bytes";
		break;
	case LINE_READ:
		answer.error = request_parse(client->bytes, length, &request);
		valid = !answer.error;
		drop_line(client, length);
		break;
	}
	if (valid && runtime->refused[0])
		answer.error = runtime->refused;
	else if (valid)
		squeeze_run(jvmti, &request, &answer);
	return send_answer(client, &answer) && valid;
}

static void serve_client(int socket, jvmtiEnv *jvmti, const struct runtime *runtime)
{
	const struct timeval limit = {.tv_sec = LINE_SECONDS};
	struct client client = {.socket = socket};
	char hello[ANSWER_MOST_BYTES];

	setsockopt(socket, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
	if (!send_line(&client, hello, answer_hello(runtime, hello)))
		return;
	while (serve_request(&client, jvmti, runtime))
		;
}

void serve_clients(int listener, jvmtiEnv *jvmti, const struct runtime *runtime)
{
	for (;;) {
		int socket = accept4(listener, NULL, NULL, SOCK_CLOEXEC);

		if (socket >= 0) {
			serve_client(socket, jvmti, runtime);
			close(socket);
		} else if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS) {
			/* The process is out of them for now. */
			poll(NULL, 0, 100);
		} else if (errno != EINTR && errno != ECONNABORTED) {
			return;
		}
	}
}
