/* SPDX-License-Identifier: GPL-2.0-only */
/* A state for KUnit tests, which no zone and no host uses. */
#ifndef _MM_LLFREE_TESTS_ZONE_KUNIT_H
#define _MM_LLFREE_TESTS_ZONE_KUNIT_H

#include <kunit/test.h>
#include <linux/mm.h>

#include "../llfree.h"

/* Two trees, the second one smaller. */
#define AREAS		13U
#define PAGES		(AREAS * LLFREE_AREA_PAGES)

/* A zone with all pages allocated. */
static inline struct llfree_zone *new_zone(struct kunit *test)
{
	const struct llfree_description description = { .areas = AREAS };
	struct llfree_zone *zone = kunit_kzalloc(test, sizeof(*zone), GFP_KERNEL);
	void *state = kunit_kzalloc(test, llfree_state_bytes(AREAS), GFP_KERNEL);

	KUNIT_ASSERT_NOT_NULL(test, zone);
	KUNIT_ASSERT_NOT_NULL(test, state);
	llfree_attach(zone, state, &description);
	llfree_init(zone);
	return zone;
}

static inline void put(struct kunit *test, struct llfree_zone *zone, u64 page,
		       unsigned int order)
{
	KUNIT_ASSERT_EQ_MSG(test, 0, llfree_put(zone, page, order),
			    "page %llu, order %u", page, order);
}

/* A zone with all pages free. */
static inline struct llfree_zone *new_free_zone(struct kunit *test)
{
	struct llfree_zone *zone = new_zone(test);
	u32 area;

	for (area = 0; area < AREAS; area++)
		put(test, zone, area * LLFREE_AREA_PAGES, LLFREE_AREA_ORDER);
	return zone;
}

/* Takes an area as the host does. */
static inline void hold(struct llfree_zone *zone, u32 area)
{
	zone->area[area] = LLFREE_HOST;
	zone->tree[area / LLFREE_TREE_AREAS] +=
		BIT(LLFREE_TREE_HELD_SHIFT + area % LLFREE_TREE_AREAS) -
		LLFREE_AREA_PAGES;
}

#endif
