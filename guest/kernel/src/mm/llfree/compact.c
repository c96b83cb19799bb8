// SPDX-License-Identifier: GPL-2.0-only
/*
 * Where compaction empties areas, and what it fills with their pages. Pages only
 * go to areas that are as full as the one they come from, or fuller: what has
 * been emptied is not filled again.
 */
#include "entries.h"

/* Areas that are tried although they may have lost what they had when looked at. */
#define TRIES	8

/* So many numbers of free pages are taken for the same. */
#define STEP	8

/**
 * llfree_emptiable() - which areas can be emptied
 * @zone: where
 *
 * The used pages of an area fit into fuller ones if these have as many free, that
 * is if they and the area have 512 free together.
 *
 * Return: the least number of free pages of an area that can be emptied; more than
 * an area has if none can.
 */
u32 llfree_emptiable(const struct llfree_zone *zone)
{
	u32 free[LLFREE_AREA_PAGES / STEP] = { }, area, i, sum = 0;
	u16 entry;

	for (area = 0; area < zone->areas; area++) {
		entry = llfree_load(&zone->area[area]);
		if (entry < LLFREE_AREA_PAGES)
			free[entry / STEP] += entry;
	}
	for (i = 0; i < LLFREE_AREA_PAGES / STEP; i++) {
		sum += free[i];
		if (sum >= LLFREE_AREA_PAGES)
			return i ? i * STEP : 1;
	}
	return LLFREE_AREA_PAGES + 1;
}

/**
 * llfree_is_emptiable() - whether an area is one that can be emptied
 * @zone: where it is
 * @area: which; one outside of the zone cannot be
 * @least: what llfree_emptiable() has said
 */
bool llfree_is_emptiable(const struct llfree_zone *zone, u32 area, u32 least)
{
	u16 entry;

	if (area >= zone->areas)
		return false;
	entry = llfree_load(&zone->area[area]);
	return entry >= least && entry < LLFREE_AREA_PAGES;
}

/* Whether the tree of an area is used for @type. */
static bool is_of_type(const struct llfree_zone *zone, u32 area,
		       enum llfree_type type)
{
	return type_of(llfree_load(&zone->tree[area / LLFREE_TREE_AREAS])) == type;
}

static long get_from(struct llfree_zone *zone, u32 area, unsigned int order)
{
	u32 *tree = &zone->tree[area / LLFREE_TREE_AREAS];
	bool evicted;
	long page;

	/* As in llfree.c, nobody is kept from single pages for nothing. */
	if (order && !llfree_area_has_run(zone, area, order))
		return -1;
	if (!tree_take(tree, 1U << order))
		return -1;
	page = llfree_area_take(zone, area, 0, order, false, &evicted);
	if (page < 0)
		tree_return(tree, 1U << order);
	return page;
}

/*
 * The fullest area with @least to @most free pages and a run of @order, one of a
 * movable tree if there is any, or -1.
 */
static long find_fullest(const struct llfree_zone *zone, u32 source,
			 unsigned int order, u32 least, u32 most)
{
	u32 area, free[2] = { most + 1, most + 1 };
	long found[2] = { -1, -1 };
	bool other;
	u16 entry;

	for (area = 0; area < zone->areas; area++) {
		entry = llfree_load(&zone->area[area]);
		if (entry < least || area == source)
			continue;
		other = !is_of_type(zone, area, LLFREE_MOVABLE);
		if (entry < free[other] &&
		    (!order || llfree_area_has_run(zone, area, order))) {
			free[other] = entry;
			found[other] = area;
		}
	}
	return found[0] >= 0 ? found[0] : found[1];
}

/**
 * llfree_get_beside() - allocate pages to empty an area into
 * @zone: where
 * @source: the area to be emptied
 * @order: at most LLFREE_AREA_ORDER - 1
 *
 * Return: the first page, counted from the zone's start, or -ENOMEM if none of the
 * few areas that were tried has them: those that are as full or fuller, the fullest
 * first.
 */
long llfree_get_beside(struct llfree_zone *zone, u32 source, unsigned int order)
{
	const u32 last = llfree_load(&zone->target), pages = 1U << order;
	const u16 most = llfree_load(&zone->area[source]);
	u32 least = pages;
	unsigned int tries;
	long page, area;
	u16 entry;

	if (most >= LLFREE_AREA_PAGES)
		return -ENOMEM;
	/* Goes on with the same area, of which fewer and fewer are free. */
	entry = llfree_load(&zone->area[last]);
	if (last != source && entry >= pages && entry <= most) {
		page = get_from(zone, last, order);
		if (page >= 0)
			return page;
	}
	for (tries = 0; tries < TRIES; tries++) {
		area = find_fullest(zone, source, order, least, most);
		if (area < 0)
			break;
		least = llfree_load(&zone->area[area]) + 1;
		page = get_from(zone, area, order);
		if (page >= 0) {
			llfree_store(&zone->target, (u32)area);
			return page;
		}
	}
	return -ENOMEM;
}
