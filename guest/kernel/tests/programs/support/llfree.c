// SPDX-License-Identifier: GPL-2.0
/* See llfree.h. */
#include "llfree.h"
#include "system.h"

u64 event_count(const char *name)
{
	char path[128];

	snprintf(path, sizeof(path), "/sys/kernel/mm/llfree/counters/%s", name);
	return read_number(path);
}
