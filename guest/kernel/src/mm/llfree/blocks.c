// SPDX-License-Identifier: GPL-2.0-only
/* Free blocks by their order, as the free lists would have them: for statistics. */
#include "entries.h"

/* Whether the 1 << @order pages from @page on are free; both are aligned. */
static bool is_free_run(const u64 *words, u32 page, unsigned int order)
{
	u32 i;

	if (order < 6)
		return !(words[page / 64] >> page % 64 & ((1ULL << (1U << order)) - 1));
	for (i = 0; i < 1U << (order - 6); i++)
		if (words[page / 64 + i])
			return false;
	return true;
}

/* Of an area that is neither free nor allocated as a whole. */
static void count_area(const u64 *shared, u64 *blocks)
{
	u64 words[LLFREE_AREA_WORDS];
	unsigned int order;
	u32 i, page;

	/* They change; what is counted is what they were once. */
	for (i = 0; i < LLFREE_AREA_WORDS; i++)
		words[i] = llfree_load(&shared[i]);
	for (page = 0; page < LLFREE_AREA_PAGES; page += 1U << order) {
		order = 0;
		if (words[page / 64] >> page % 64 & 1)
			continue;
		while (order + 1 < LLFREE_AREA_ORDER &&
		       !(page & ((2U << order) - 1)) &&
		       is_free_run(words, page, order + 1))
			order++;
		blocks[order]++;
	}
}

/**
 * llfree_count_blocks() - how many free blocks of each order there are
 * @zone: where
 * @blocks: LLFREE_MAX_ORDER + 1 numbers, which are set
 *
 * Each free page is in the largest aligned block around it. What is allocated
 * and freed meanwhile may count or not.
 */
void llfree_count_blocks(const struct llfree_zone *zone, u64 *blocks)
{
	u32 area;
	u16 entry;

	memset(blocks, 0, (LLFREE_MAX_ORDER + 1) * sizeof(*blocks));
	for (area = 0; area < zone->areas; area++) {
		entry = llfree_load(&zone->area[area]);
		if (is_whole(entry)) {
			if (!(area % 2) && area + 1 < zone->areas &&
			    is_whole(llfree_load(&zone->area[area + 1]))) {
				blocks[LLFREE_MAX_ORDER]++;
				area++;
			} else {
				blocks[LLFREE_AREA_ORDER]++;
			}
		} else if (!(entry & LLFREE_ALLOCATED) && entry) {
			count_area(zone->words + (u64)area * LLFREE_AREA_WORDS,
				   blocks);
		}
	}
}
