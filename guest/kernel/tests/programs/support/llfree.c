// SPDX-License-Identifier: GPL-2.0
/* See llfree.h. */
#include "llfree.h"
#include "memory.h"
#include "system.h"

#include <unistd.h>

#define FILES	"/sys/kernel/mm/llfree/"

u64 event_count(const char *name)
{
	char path[128];

	snprintf(path, sizeof(path), FILES "counters/%s", name);
	return read_number(path);
}

u64 zone_number(const char *zone, const char *name)
{
	char path[128];

	snprintf(path, sizeof(path), FILES "zones/%s/%s", zone, name);
	return read_number(path);
}

unsigned int free_areas(const char *zone)
{
	return (zone_number(zone, "whole_bytes") + zone_number(zone, "evicted_bytes")) / HUGE_PAGE;
}

bool on_free_lists(void)
{
	return access(FILES "zones/DMA32", F_OK);
}
