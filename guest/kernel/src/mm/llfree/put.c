// SPDX-License-Identifier: GPL-2.0-only
/* Freeing pages, and taking a certain one. */
#include "entries.h"

/**
 * llfree_get_page() - allocate a certain page
 * @zone: where it is
 * @page: counted from the zone's start
 *
 * Return: false if it was not free, or the host had it in hand or held it.
 */
bool llfree_get_page(struct llfree_zone *zone, u64 page)
{
	u16 *area = &zone->area[page / LLFREE_AREA_PAGES];
	u32 *tree = &zone->tree[page / LLFREE_TREE_PAGES];
	u64 *word = &zone->words[page / 64], old, was;
	const u64 bit = 1ULL << page % 64;
	bool evicted;

	if (!is_inside(zone, page) || !tree_take(tree, 1))
		return false;
	if (!area_take(area, 1, true, &evicted))
		goto out_tree;
	old = llfree_load(word);
	while (!(old & bit)) {
		was = llfree_cmpxchg(word, old, old | bit);
		if (was == old)
			return true;
		old = was;
	}
	area_give(area, 1);
out_tree:
	tree_return(tree, 1);
	return false;
}

static noinline int put(struct llfree_zone *zone, u64 page, unsigned int order)
{
	const u32 pages = 1U << order, area = page / LLFREE_AREA_PAGES;
	u64 *words = zone->words + (u64)area * LLFREE_AREA_WORDS;
	u16 entry, seen;
	int rc;

	if (order > LLFREE_AREA_ORDER) {
		rc = put(zone, page, order - 1);
		return rc ? rc : put(zone, page + pages / 2, order - 1);
	}

	entry = llfree_load(&zone->area[area]);
	if (entry == LLFREE_ALLOCATED && order == LLFREE_AREA_ORDER) {
		words_fill(words, 0);
		seen = llfree_cmpxchg(&zone->area[area], entry,
				      (u16)LLFREE_AREA_PAGES);
		if (seen != entry)
			return -EINVAL;
		tree_give(&zone->tree[area / LLFREE_TREE_AREAS], pages);
		return 0;
	}
	/* The first part of a whole area: from here on it is any pages. */
	while (entry & LLFREE_ALLOCATED) {
		if (entry & LLFREE_EVICTED)
			return -EINVAL;
		seen = llfree_cmpxchg(&zone->area[area], entry, (u16)0);
		if (seen == entry)
			break;
		entry = seen;
	}
	rc = llfree_words_give(words, page % LLFREE_AREA_PAGES, order);
	if (rc)
		return rc;
	area_give(&zone->area[area], pages);
	tree_give(&zone->tree[area / LLFREE_TREE_AREAS], pages);
	return 0;
}

/* A single page of an area that is not as a whole somebody's: to be fast. */
static inline int put_one(struct llfree_zone *zone, u64 page)
{
	u64 *word = &zone->words[page / 64], old = llfree_load(word), was;
	const u64 bit = 1ULL << page % 64;

	do {
		if (!(old & bit))
			return -EINVAL;
		was = old;
		old = llfree_cmpxchg(word, was, was & ~bit);
	} while (old != was);
	area_give(&zone->area[page / LLFREE_AREA_PAGES], 1);
	tree_give(&zone->tree[page / LLFREE_TREE_PAGES], 1);
	return 0;
}

/**
 * llfree_put() - free 1 << @order pages
 * @zone: where they are
 * @page: the first, counted from the zone's start
 * @order: at most LLFREE_MAX_ORDER
 *
 * Pages may be freed in other blocks than they were allocated in.
 *
 * Return: 0, or -EINVAL if they are not allocated, or the host's. Of a block
 * larger than 64 pages, the ones before may have been freed then.
 */
int llfree_put(struct llfree_zone *zone, u64 page, unsigned int order)
{
	const u64 all = (u64)zone->areas * LLFREE_AREA_PAGES;
	const u32 pages = 1U << order;

	if (!is_inside(zone, page))
		return -EINVAL;
	if (!order && !(llfree_load(&zone->area[page / LLFREE_AREA_PAGES]) &
			LLFREE_ALLOCATED))
		return put_one(zone, page);
	if (order > LLFREE_MAX_ORDER || page & (pages - 1) || pages > all - page)
		return -EINVAL;
	return put(zone, page, order);
}
