// SPDX-License-Identifier: GPL-2.0-only
/* Free blocks by their order, as the free lists would have them: for statistics. */
#include "entries.h"

/*
 * Counts the runs in @free, each of them 1 << @order pages that are free where its
 * bit is 1, that are no half of a larger one. Returns the larger ones, by the bit
 * of their first half; @starts says which bits these can be.
 */
static u64 count_runs(u64 free, u64 starts, unsigned int order,
		      unsigned int distance, u64 *blocks)
{
	const u64 pairs = free & (free >> distance) & starts;

	blocks[order] += llfree_count_word(free & ~(pairs | (pairs << distance)));
	return pairs;
}

/* Of an area that is neither free nor allocated as a whole. */
static void count_area(const u64 *words, u64 *blocks)
{
	/* Where a run of twice as many pages may start. */
	static const u64 starts[] = {
		0x5555555555555555ULL, 0x1111111111111111ULL,
		0x0101010101010101ULL, 0x0001000100010001ULL,
		0x0000000100000001ULL, 1ULL,
	};
	unsigned int order;
	u64 free, whole = 0;
	u32 i;

	/* They change; what is counted is what they were once. */
	for (i = 0; i < LLFREE_AREA_WORDS; i++) {
		free = ~llfree_load(&words[i]);
		for (order = 0; order < 6 && free; order++)
			free = count_runs(free, starts[order], order,
					  1U << order, blocks);
		whole |= free << i;
	}
	/* The same for words that are free as a whole, of order 6. */
	whole = count_runs(whole, 0x55, 6, 1, blocks);
	whole = count_runs(whole, 0x11, 7, 2, blocks);
	blocks[8] += llfree_count_word(whole);
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
