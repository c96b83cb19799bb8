// SPDX-License-Identifier: GPL-2.0
/* See llfree.h. */
#include "llfree.h"
#include "system.h"

#include <unistd.h>

#define FILES	"/sys/kernel/mm/llfree/"

u64 event_count(const char *name)
{
	char path[128];

	snprintf(path, sizeof(path), FILES "counters/%s", name);
	return read_number(path);
}

bool on_free_lists(void)
{
	return access(FILES "zones/DMA32", F_OK);
}
