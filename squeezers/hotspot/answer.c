// SPDX-License-Identifier: Apache-2.0 OR MIT
#include "answer.h"

#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

/* Longer texts are cut. A character takes two bytes at most, and a hello has two texts. */
#define LONGEST_TEXT 256

struct line {
	char *text;
	size_t length;
};

#define ADD(line, ...) \
	((line)->length += \
	 (size_t)snprintf((line)->text + (line)->length, ANSWER_MOST_BYTES - (line)->length, __VA_ARGS__))

/* A string of JSON, or null. */
static void add_text(struct line *line, const char *text)
{
	if (!text) {
		ADD(line, "null");
		return;
	}
	ADD(line, "\"");
	for (int i = 0; i < LONGEST_TEXT && text[i]; i++) {
		if (text[i] == '"' || text[i] == '\\')
			ADD(line, "\\%c", text[i]);
		else if (text[i] < 0x20 || text[i] > 0x7e)
			/* What a JVM says of itself is ASCII. */
			ADD(line, "?");
		else
			ADD(line, "%c", text[i]);
	}
	ADD(line, "\"");
}

size_t answer_hello(const struct runtime *runtime, char text[ANSWER_MOST_BYTES])
{
	struct line line = {text, 0};

	ADD(&line, "{\"squeezer\":1,\"runtime\":\"hotspot\",\"runtime_version\":");
	add_text(&line, runtime->version);
	ADD(&line, ",\"collector\":");
	add_text(&line, runtime->collector_name);
	ADD(&line, ",\"pid\":%d", (int)getpid());
	if (runtime->refused[0]) {
		ADD(&line, ",\"refused\":");
		add_text(&line, runtime->refused);
	}
	ADD(&line, "}\n");
	return line.length;
}

size_t answer_result(const struct answer *answer, char text[ANSWER_MOST_BYTES])
{
	struct line line = {text, 0};

	ADD(&line, "{\"before_bytes\":%" PRIu64 ",\"after_bytes\":%" PRIu64, answer->before_bytes, answer->after_bytes);
	ADD(&line, ",\"live_bytes\":%" PRIu64 ",\"advised_bytes\":%" PRIu64, answer->live_bytes, answer->advised_bytes);
	ADD(&line, ",\"pause_ns\":%" PRIu64 ",\"cpu_ns\":%" PRIu64 ",\"error\":", answer->pause_ns, answer->cpu_ns);
	add_text(&line, answer->error);
	ADD(&line, "}\n");
	return line.length;
}
