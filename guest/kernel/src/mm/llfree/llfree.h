/* SPDX-License-Identifier: GPL-2.0-only */
/* LLFree, the guest's side: a page allocator without locks. */
#ifndef _MM_LLFREE_LLFREE_H
#define _MM_LLFREE_LLFREE_H

#include "state.h"

/**
 * enum llfree_type - allocations that are kept apart
 * @LLFREE_UNMOVABLE: pages that stay where they are
 * @LLFREE_MOVABLE: pages that can be migrated or dropped
 * @LLFREE_HUGE: whole areas
 *
 * A tree has pages of one type as long as there is room elsewhere for others,
 * so that whole areas are free again once short-lived pages are gone. If it has
 * pages of several, its type is the first of them in this order, until all of it
 * has been free.
 */
enum llfree_type {
	LLFREE_UNMOVABLE,
	LLFREE_MOVABLE,
	LLFREE_HUGE,
	LLFREE_TYPES
};

/**
 * struct llfree_zone - the guest's own view of a zone, not shared
 * @start_page: number of its first page
 * @areas: how many it has
 * @trees: how many it has
 * @live: in the shared state
 * @words: in the shared state, LLFREE_AREA_WORDS for each area
 * @area: in the shared state, an entry for each area
 * @tree: in the shared state, an entry for each tree
 * @hint: for each type the word that the last allocation came from, plus 1
 * @target: the area that compaction fills
 */
struct llfree_zone {
	u64 start_page;
	u32 areas;
	u32 trees;
	struct llfree_live *live;
	u64 *words;
	u16 *area;
	u32 *tree;
	u32 hint[LLFREE_TYPES];
	u32 target;
};

/**
 * struct llfree_areas - how many areas are as a whole somebody's
 * @whole: entirely free, with the host's memory behind them
 * @evicted: entirely free, with nothing behind them
 * @held: the host's
 */
struct llfree_areas {
	u32 whole;
	u32 evicted;
	u32 held;
};

u64 llfree_state_bytes(u32 areas);
void llfree_attach(struct llfree_zone *zone, void *header,
		   const struct llfree_description *description);
void llfree_init(struct llfree_zone *zone);

long llfree_get_here(struct llfree_zone *zone, enum llfree_type type);
long llfree_get_any(struct llfree_zone *zone, unsigned int order,
		    enum llfree_type type, bool *evicted);
bool llfree_get_page(struct llfree_zone *zone, u64 page);
int llfree_put(struct llfree_zone *zone, u64 page, unsigned int order);

u32 llfree_emptiable(const struct llfree_zone *zone);
bool llfree_is_emptiable(const struct llfree_zone *zone, u32 area, u32 least);
long llfree_get_beside(struct llfree_zone *zone, u32 source, unsigned int order);

void llfree_doom(struct llfree_zone *zone);
bool llfree_undoom(struct llfree_zone *zone);
void llfree_forget_doom(struct llfree_zone *zone);

bool llfree_has(const struct llfree_zone *zone, unsigned int order);
bool llfree_look_for(const struct llfree_zone *zone, unsigned int order);
u64 llfree_free_pages(const struct llfree_zone *zone);
struct llfree_areas llfree_count_areas(const struct llfree_zone *zone);
u32 llfree_held_areas(const struct llfree_zone *zone);
u64 llfree_isolated_pages(const struct llfree_zone *zone);
void llfree_count_blocks(const struct llfree_zone *zone, u64 *blocks);
u64 llfree_unused_pages(const struct llfree_zone *zone);
bool llfree_is_free(const struct llfree_zone *zone, u64 page);

/**
 * llfree_get() - allocate 1 << @order pages
 * @zone: where
 * @order: at most LLFREE_MAX_ORDER
 * @type: what for
 * @evicted: set to whether the host has nothing behind some of them; those
 *	read as zeros
 *
 * Return: the first page, counted from the zone's start, or -ENOMEM.
 */
static inline long llfree_get(struct llfree_zone *zone, unsigned int order,
			      enum llfree_type type, bool *evicted)
{
	long page;

	if (!order) {
		page = llfree_get_here(zone, type);
		if (page >= 0) {
			*evicted = false;
			return page;
		}
	}
	return llfree_get_any(zone, order, type, evicted);
}

#endif
