// SPDX-License-Identifier: GPL-2.0
/* See trace.h. */
#include "trace.h"
#include "system.h"

#include <string.h>

#define TRACING	"/sys/kernel/tracing/"

void trace_events(const char *name, bool on)
{
	char path[128];

	snprintf(path, sizeof(path), TRACING "events/%s/enable", name);
	ASSERT(write_text(path, on ? "1" : "0"), "%s: %m", path);
}

bool trace_has(pid_t pid, const char *a, const char *b)
{
	FILE *trace = fopen(TRACING "trace", "re");
	char line[512], whose[16] = "";
	bool found = false;

	ASSERT(trace, TRACING "trace: %m");
	if (pid)
		snprintf(whose, sizeof(whose), "-%d ", pid);
	while (!found && fgets(line, sizeof(line), trace))
		found = strstr(line, whose) && strstr(line, a) && strstr(line, b);
	fclose(trace);
	return found;
}
