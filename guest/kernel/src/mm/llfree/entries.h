/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What is done to entries and bits in one step, or in one area. The order of
 * such steps is that of L1 in state.h.
 */
#ifndef _MM_LLFREE_ENTRIES_H
#define _MM_LLFREE_ENTRIES_H

#include "llfree.h"

long llfree_area_take(struct llfree_zone *zone, u32 area, u32 first,
		      unsigned int order, bool evicted_too, bool *evicted);
bool llfree_area_has_run(const struct llfree_zone *zone, u32 area,
			 unsigned int order);
int llfree_words_give(u64 *words, unsigned int bit, unsigned int order);
bool llfree_tree_has(const struct llfree_zone *zone, u32 tree,
		     unsigned int order);

/* The tree that a word of bits is in. */
static inline u32 tree_of_word(u32 word)
{
	return word / (LLFREE_AREA_WORDS * LLFREE_TREE_AREAS);
}

/* What a tree is used for. */
static inline enum llfree_type type_of(u32 tree)
{
	return (tree & LLFREE_TREE_TYPE) >> LLFREE_TREE_TYPE_SHIFT;
}

/* The smallest order that a tree has no run for, as far as is known, or 0. */
static inline u32 lacks(u32 tree)
{
	return (tree & LLFREE_TREE_LACKS) >> LLFREE_TREE_LACKS_SHIFT;
}

static inline bool tree_take(u32 *tree, u32 pages)
{
	u32 old = llfree_load(tree), seen;

	while ((old & LLFREE_TREE_FREE) >= pages) {
		seen = llfree_cmpxchg(tree, old, old - pages);
		if (seen == old)
			return true;
		old = seen;
	}
	return false;
}

/* Gives back a count that was of no use: nothing is free that was not before. */
static inline void tree_return(u32 *tree, u32 pages)
{
	u32 old = llfree_load(tree), seen;

	for (;;) {
		seen = llfree_cmpxchg(tree, old, old + pages);
		if (seen == old)
			return;
		old = seen;
	}
}

/* There may be a run of any order now. */
static inline void tree_forget(u32 *tree)
{
	u32 old = llfree_load(tree), seen;

	while (old & LLFREE_TREE_LACKS) {
		seen = llfree_cmpxchg(tree, old, old & ~LLFREE_TREE_LACKS);
		if (seen == old)
			return;
		old = seen;
	}
}

/* The count of pages that are free from now on. */
static inline void tree_give(u32 *tree, u32 pages)
{
	u32 old = llfree_load(tree), seen;

	for (;;) {
		/* What is free now may be the run that it had not. */
		seen = llfree_cmpxchg(tree, old,
				      (old + pages) & ~LLFREE_TREE_LACKS);
		if (seen == old)
			return;
		old = seen;
	}
}

static inline void area_give(u16 *area, u32 pages)
{
	u16 old = llfree_load(area), seen;

	for (;;) {
		seen = llfree_cmpxchg(area, old, (u16)(old + pages));
		if (seen == old)
			return;
		old = seen;
	}
}

/* A page below the zone's first is a very large number. */
static inline bool is_inside(const struct llfree_zone *zone, u64 page)
{
	return page < (u64)zone->areas * LLFREE_AREA_PAGES;
}

static inline bool is_whole(u16 entry)
{
	return (entry & ~LLFREE_EVICTED) == LLFREE_AREA_PAGES;
}

/* The lowest aligned run of 1 << @order zeros in @word, @order <= 6, or -1. */
static inline int find_run(u64 word, unsigned int order)
{
	/* Where a run of each order may start. */
	static const u64 starts[] = {
		0xffffffffffffffffULL, 0x5555555555555555ULL,
		0x1111111111111111ULL, 0x0101010101010101ULL,
		0x0001000100010001ULL, 0x0000000100000001ULL, 1ULL,
	};
	u64 free = ~word;
	unsigned int i;

	for (i = 0; i < order; i++)
		free &= free >> (1U << i);
	free &= starts[order];
	return free ? (int)llfree_first(free) : -1;
}

static inline u64 run(unsigned int order)
{
	return order >= 6 ? ~0ULL : (1ULL << (1U << order)) - 1;
}

/* What is known of @count areas from @first on. */
static inline struct llfree_areas areas_in(const struct llfree_zone *zone,
					   u32 first, u32 count)
{
	struct llfree_areas areas = { };
	u32 i;

	for (i = 0; i < count; i++) {
		const u16 entry = llfree_load(&zone->area[first + i]);

		areas.whole += entry == LLFREE_AREA_PAGES;
		areas.evicted += entry == (LLFREE_AREA_PAGES | LLFREE_EVICTED);
		areas.held += entry == LLFREE_HOST;
	}
	return areas;
}

/* Whether @pages may be taken from an area with this entry. */
static inline bool offers(u16 entry, u32 pages, bool evicted_too)
{
	return (entry & LLFREE_AREA_FREE) >= pages &&
	       !(entry & LLFREE_ISOLATED) &&
	       (evicted_too || !(entry & LLFREE_EVICTED));
}

/* Takes the count of @pages; @evicted says what was behind them. */
static inline bool area_take(u16 *area, u32 pages, bool evicted_too,
			     bool *evicted)
{
	u16 old = llfree_load(area), seen;

	while (offers(old, pages, evicted_too)) {
		seen = llfree_cmpxchg(area, old,
				      (u16)((old - pages) & ~LLFREE_EVICTED));
		if (seen == old) {
			*evicted = old & LLFREE_EVICTED;
			return true;
		}
		old = seen;
	}
	return false;
}

/* The bits of one's own area, which nobody else changes (L2). */
static inline void words_fill(u64 *words, u64 value)
{
	unsigned int i;

	for (i = 0; i < LLFREE_AREA_WORDS; i++)
		llfree_store(&words[i], value);
}

#endif
