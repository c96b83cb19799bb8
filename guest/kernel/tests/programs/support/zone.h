/* SPDX-License-Identifier: GPL-2.0 */
/* The zones of ordinary memory, as /proc/zoneinfo and /proc/buddyinfo have them. */
#ifndef SQUEEZY_TEST_ZONE_H
#define SQUEEZY_TEST_ZONE_H

#include "harness.h"

/* The zone's lists of processors have one line each. */
struct zone {
	u64 min, high, boost, spanned, start_pfn;
	u64 protection;		/* the largest */
	u64 on_lists;		/* pages on lists of processors */
};

/* False if there is no such zone, or nothing in it. */
bool read_zone(const char *name, struct zone *zone);
/* A free page in the middle of a zone. */
u64 free_page_in(const char *name);
/* Bytes that are free in blocks of @least or higher orders, in all zones. */
u64 free_blocks_bytes(int least);
/* The same in all of them but @but. */
u64 free_blocks_beside(int least, const char *but);

#endif
