/* SPDX-License-Identifier: GPL-2.0 */
/* The zones of ordinary memory, as /proc/zoneinfo has them. */
#ifndef SQUEEZY_TEST_ZONE_H
#define SQUEEZY_TEST_ZONE_H

#include "harness.h"

/* The zone's lists of processors have one line each. */
struct zone {
	u64 high, boost, spanned, start_pfn;
	u64 protection;		/* the largest */
	u64 on_lists;		/* pages on lists of processors */
};

/* False if there is no such zone, or nothing in it. */
bool read_zone(const char *name, struct zone *zone);
/* A free page in the middle of a zone. */
u64 free_page_in(const char *name);

#endif
