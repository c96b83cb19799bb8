// SPDX-License-Identifier: GPL-2.0-only
/* Where the state of a zone is, and what can be read off it. */
#include "entries.h"

/**
 * llfree_state_bytes() - how large the state of a zone is
 * @areas: that it has
 *
 * Return: bytes, a multiple of 64.
 */
u64 llfree_state_bytes(u32 areas)
{
	const u32 trees = DIV_ROUND_UP(areas, LLFREE_TREE_AREAS);

	return sizeof(struct llfree_live) + (u64)areas * LLFREE_AREA_WORDS * 8 +
	       ALIGN((u64)areas * sizeof(u16), 64) +
	       ALIGN((u64)trees * sizeof(u32), 64);
}

/**
 * llfree_attach() - make the guest's own view of a zone
 * @zone: the view
 * @header: the start of the state
 * @description: which zone; its numbers are right
 */
void llfree_attach(struct llfree_zone *zone, void *header,
		   const struct llfree_description *description)
{
	memset(zone, 0, sizeof(*zone));
	zone->start_page = description->start_page;
	zone->areas = description->areas;
	zone->trees = DIV_ROUND_UP(description->areas, LLFREE_TREE_AREAS);
	zone->live = header + description->offset;
	zone->words = (void *)(zone->live + 1);
	zone->area = (void *)(zone->words + (u64)zone->areas * LLFREE_AREA_WORDS);
	zone->tree = (void *)zone->area +
		     ALIGN((u64)zone->areas * sizeof(u16), 64);
}

/**
 * llfree_init() - make all pages of a zone allocated
 * @zone: which nobody uses yet, the host included
 *
 * What there is of it is then freed.
 */
void llfree_init(struct llfree_zone *zone)
{
	memset(zone->live, 0, sizeof(*zone->live));
	memset(zone->words, 0xff, (size_t)zone->areas * LLFREE_AREA_WORDS * 8);
	memset(zone->area, 0, zone->areas * sizeof(*zone->area));
	memset(zone->tree, 0, zone->trees * sizeof(*zone->tree));
}

/**
 * llfree_tree_has() - whether 1 << @order pages of a tree can probably be had
 * @zone: where it is
 * @tree: which
 * @order: at most LLFREE_MAX_ORDER
 *
 * Return: as llfree_has() for this tree.
 */
bool llfree_tree_has(const struct llfree_zone *zone, u32 tree, unsigned int order)
{
	const u32 entry = llfree_load(&zone->tree[tree]);
	const bool is_lacking = lacks(entry) && order >= lacks(entry);
	u32 area = tree * LLFREE_TREE_AREAS;
	bool whole, before = false;
	u16 look;

	if ((entry & LLFREE_TREE_FREE) < 1U << order)
		return false;
	if (order <= 6 && !is_lacking)
		return true;
	for (; area < zone->areas && area / LLFREE_TREE_AREAS == tree; area++) {
		look = llfree_load(&zone->area[area]);
		whole = is_whole(look);
		/* A pair begins with an even one. */
		if (whole && (order <= LLFREE_AREA_ORDER || (area % 2 && before)))
			return true;
		if (order < LLFREE_AREA_ORDER && !is_lacking &&
		    offers(look, 1U << order, true))
			return true;
		before = whole;
	}
	return false;
}

/**
 * llfree_has() - whether 1 << @order pages can probably be had
 * @zone: where
 * @order: at most LLFREE_MAX_ORDER
 *
 * Return: false only if there was no tree with so many free pages, or none of
 * them was known to have them in a row.
 */
bool llfree_has(const struct llfree_zone *zone, unsigned int order)
{
	/* Each allocation of several pages asks: first where a huge page was last. */
	const u32 hint = llfree_load(&zone->hint[LLFREE_HUGE]);
	u32 i, tree = hint ? tree_of_word(hint - 1) : 0;

	for (i = 0; i < zone->trees; i++, tree++) {
		if (tree == zone->trees)
			tree = 0;
		if (llfree_tree_has(zone, tree, order))
			return true;
	}
	return false;
}

/**
 * llfree_free_pages() - how many pages are free
 * @zone: where
 *
 * Return: at most as many as there were at some moment meanwhile, if nobody
 * allocated. Pages that the host has in hand do not count.
 */
u64 llfree_free_pages(const struct llfree_zone *zone)
{
	u64 pages = 0;
	u32 tree;

	for (tree = 0; tree < zone->trees; tree++)
		pages += llfree_load(&zone->tree[tree]) & LLFREE_TREE_FREE;
	return pages;
}

/**
 * llfree_count_areas() - how many areas are as a whole the guest's or the host's
 * @zone: where
 */
struct llfree_areas llfree_count_areas(const struct llfree_zone *zone)
{
	return areas_in(zone, 0, zone->areas);
}

/**
 * llfree_held_areas() - how many areas the host has counted out
 * @zone: where
 *
 * Return: those that it keeps, and those that it gives back at once.
 */
u32 llfree_held_areas(const struct llfree_zone *zone)
{
	u32 tree, areas = 0;

	for (tree = 0; tree < zone->trees; tree++)
		areas += llfree_count(llfree_load(&zone->tree[tree]) &
				      LLFREE_TREE_HELD);
	return areas;
}

/**
 * llfree_isolated_pages() - how many free pages nobody can have for the moment
 * @zone: where
 *
 * Return: those of areas whose single pages the host discards.
 */
u64 llfree_isolated_pages(const struct llfree_zone *zone)
{
	u64 pages = 0;
	u32 area;
	u16 entry;

	for (area = 0; area < zone->areas; area++) {
		entry = llfree_load(&zone->area[area]);
		if (entry & LLFREE_ISOLATED)
			pages += entry & LLFREE_AREA_FREE;
	}
	return pages;
}

/**
 * llfree_unused_pages() - how many pages are nobody's in the guest
 * @zone: where
 *
 * Those that the host has count: it takes and gives back a tree's pages in one
 * step with the bits that say so (L4), and what this counts stays the same.
 *
 * Return: at most as many as there were at some moment meanwhile, if nobody
 * allocated. All of them, only if nobody has any.
 */
u64 llfree_unused_pages(const struct llfree_zone *zone)
{
	u64 pages = 0;
	u32 tree, entry;

	for (tree = 0; tree < zone->trees; tree++) {
		entry = llfree_load(&zone->tree[tree]);
		pages += entry & LLFREE_TREE_FREE;
		pages += (u64)llfree_count(entry & LLFREE_TREE_HELD) *
			 LLFREE_AREA_PAGES;
	}
	return pages;
}

/**
 * llfree_is_free() - whether a page is nobody's in the guest
 * @zone: where it is
 * @page: counted from the zone's start
 *
 * Return: as it was at that moment. Pages that the host holds are; what is no
 * page of the zone is not.
 */
bool llfree_is_free(const struct llfree_zone *zone, u64 page)
{
	u16 entry;

	if (!is_inside(zone, page))
		return false;
	entry = llfree_load(&zone->area[page / LLFREE_AREA_PAGES]);
	if (entry & LLFREE_ALLOCATED)
		return entry & LLFREE_EVICTED;
	return !(llfree_load(&zone->words[page / 64]) & (1ULL << page % 64));
}
