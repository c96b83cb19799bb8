// SPDX-License-Identifier: GPL-2.0
/* See reporting.h. */
#define _GNU_SOURCE
#include "reporting.h"
#include "host.h"
#include "memory.h"
#include "pages.h"
#include "squeezy.h"
#include "system.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The bit of VIRTIO_BALLOON_F_REPORTING. */
#define F_REPORTING	5
/* Seeds of what is in memory. */
#define LIVE		5
#define GARBAGE		6

int report(int partition, const char *order)
{
	char path[96], line[32];

	snprintf(path, sizeof(path), "/sys/kernel/mm/squeezy/partition%d/report", partition);
	snprintf(line, sizeof(line), "%s\n", order);
	return write_text(path, line) ? 0 : -1;
}

u64 reported(int partition)
{
	char path[96];

	snprintf(path, sizeof(path), "/sys/kernel/mm/squeezy/partition%d/reported_bytes",
		 partition);
	return read_number(path);
}

bool find_balloon(char *name, size_t size)
{
	DIR *driver = opendir(BALLOON_DRIVER);
	char path[400], features[80];
	struct dirent *entry;
	bool found = false;

	while (driver && !found && (entry = readdir(driver))) {
		snprintf(path, sizeof(path), VIRTIO_DEVICES "%s/features", entry->d_name);
		found = !strncmp(entry->d_name, "virtio", 6) &&
			read_text(path, features, sizeof(features)) &&
			features[F_REPORTING] == '1';
		if (found)
			snprintf(name, size, "%s", entry->d_name);
	}
	if (driver)
		closedir(driver);
	return found;
}

void require_reporting(void)
{
	char name[256];

	require_partitions();
	require_host();
	if (!find_balloon(name, sizeof(name)))
		skip("the VM has no balloon with free page reporting");
}

ACTOR(has_garbage)
{
	u64 live = percent(atoi(argv[0])), garbage = percent(atoi(argv[1])), at, seed = GARBAGE;
	bool huge = atoi(argv[2]);
	char *memory = huge ? map_huge(live + garbage) : map_anon(live + garbage);
	char *freed = memory + live;
	const char *what;

	fill(memory, live, LIVE);
	fill(freed, garbage, seed);
	tell("ready");
	for (;;) {
		what = hear();
		if (!strcmp(what, "free")) {
			OK(madvise(freed, garbage, MADV_DONTNEED));
		} else if (!strcmp(what, "free some")) {
			for (at = 0; at < garbage; at += 128 * KIB)
				OK(madvise(freed + at, 64 * KIB, MADV_DONTNEED));
		} else if (!strcmp(what, "zero")) {
			tell(all_zero(freed, garbage) ? "intact" : "broken");
			continue;
		} else if (!strcmp(what, "reuse")) {
			fill(freed, garbage, ++seed);
			assert_confined(getpid(), (live + garbage) / PAGE);
		} else if (!strcmp(what, "check")) {
			tell(filled(memory, live, LIVE) ? "intact" : "broken");
			continue;
		} else if (!strcmp(what, "check garbage")) {
			tell(filled(freed, garbage, seed) ? "intact" : "broken");
			continue;
		}
		tell("done");
	}
}

struct actor start_with_garbage(const char *live, const char *garbage, const char *huge)
{
	struct actor actor = actor_start(ANY, "has_garbage", live, garbage, huge, NULL);

	actor_hear(&actor);
	return actor;
}

void have(struct actor *actor, const char *what)
{
	actor_tell(actor, "%s", what);
	ASSERT(!strcmp(actor_hear(actor), "done"), "%s", what);
}

void assert_kept(struct actor *actor, const char *what)
{
	actor_tell(actor, "%s", what);
	ASSERT(!strcmp(actor_hear(actor), "intact"), "%s of partition %d: memory changed", what,
	       actor->partition);
}
