/* SPDX-License-Identifier: GPL-2.0-only */
/* Zones whose pages LLFree has: what makes them, and what waits for the host. */
#ifndef _MM_LLFREE_ZONE_H
#define _MM_LLFREE_ZONE_H

#include <linux/mmzone.h>
#include <linux/llfree_hooks.h>

bool llfree_wants_partitions(void);
int llfree_prepare(unsigned int zones, unsigned long pages);
int llfree_add_zone(struct zone *zone, unsigned long start_pfn,
		    unsigned long pages, const char *name);

unsigned long llfree_zone_unused_pages(const struct zone *zone);
unsigned int llfree_wait_for_host(const struct zone *zone);
bool llfree_host_interfered(const struct zone *zone, unsigned int epoch);

#endif
