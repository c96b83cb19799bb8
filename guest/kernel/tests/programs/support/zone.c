// SPDX-License-Identifier: GPL-2.0
/* See zone.h. */
#include "zone.h"
#include "pages.h"

#include <string.h>

bool read_zone(const char *name, struct zone *zone)
{
	FILE *file = fopen("/proc/zoneinfo", "re");
	char line[512], word[64], *at;
	bool inside = false, found = false;
	int length;
	u64 value;

	ASSERT(file, "/proc/zoneinfo: %m");
	memset(zone, 0, sizeof(*zone));
	while (fgets(line, sizeof(line), file)) {
		if (sscanf(line, "Node 0, zone %63s", word) == 1) {
			inside = !strcmp(word, name);
			found |= inside;
		}
		if (!inside)
			continue;
		at = strstr(line, "protection: (");
		if (at) {
			at += strlen("protection: (");
			while (sscanf(at, "%llu%n", &value, &length) == 1) {
				zone->protection = value > zone->protection ? value :
						   zone->protection;
				at += length + strspn(at + length, ", ");
			}
		}
		if (sscanf(line, " %63s %llu", word, &value) != 2)
			continue;
		if (!strcmp(word, "min"))
			zone->min = value;
		else if (!strcmp(word, "high"))
			zone->high = value;
		else if (!strcmp(word, "boost"))
			zone->boost = value;
		else if (!strcmp(word, "spanned"))
			zone->spanned = value;
		else if (!strcmp(word, "start_pfn:"))
			zone->start_pfn = value;
		else if (!strcmp(word, "count:"))
			zone->on_lists += value;
	}
	fclose(file);
	return found && zone->spanned;
}

u64 free_page_in(const char *name)
{
	struct zone zone;
	u64 i, pfn;

	ASSERT(read_zone(name, &zone), "no %s", name);
	/* From the middle on: a debug kernel fills one end with notes of all memory. */
	for (i = 0; i < zone.spanned; i++) {
		pfn = zone.start_pfn + (zone.spanned / 2 + i) % zone.spanned;
		if (is_called_free(pfn))
			return pfn;
	}
	FAIL("nothing is free");
}

u64 free_blocks_beside(int least, const char *but)
{
	FILE *file = fopen("/proc/buddyinfo", "re");
	u64 pages = 0, blocks;
	char line[256], zone[32], *at;
	int order, length;

	ASSERT(file, "/proc/buddyinfo: %m");
	while (fgets(line, sizeof(line), file)) {
		at = line;
		ASSERT(sscanf(at, "Node %*d, zone %31s%n", zone, &length) == 1, "%s", line);
		if (but && !strcmp(zone, but))
			continue;
		at += length;
		for (order = 0; sscanf(at, "%llu%n", &blocks, &length) == 1; order++) {
			if (order >= least)
				pages += blocks << order;
			at += length;
		}
	}
	fclose(file);
	return pages * PAGE;
}

u64 free_blocks_bytes(int least)
{
	return free_blocks_beside(least, NULL);
}
