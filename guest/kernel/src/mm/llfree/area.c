// SPDX-License-Identifier: GPL-2.0-only
/* Pages of one area: its entry, and then its bits. */
#include "entries.h"

static int word_take(u64 *word, unsigned int order)
{
	u64 old = llfree_load(word), seen;
	int bit;

	while ((bit = find_run(old, order)) >= 0) {
		seen = llfree_cmpxchg(word, old, old | run(order) << bit);
		if (seen == old)
			return bit;
		old = seen;
	}
	return -1;
}

/*
 * Takes whole words, for orders 7 and 8. The first page's bit, or -1. Sets
 * @put_back if it has held any for a moment that it does not take.
 */
static int words_take(u64 *words, unsigned int order, bool *put_back)
{
	const unsigned int count = 1U << (order - 6);
	unsigned int i, j;

	for (i = 0; i < LLFREE_AREA_WORDS; i += count) {
		for (j = 0; j < count; j++)
			if (llfree_cmpxchg(&words[i + j], 0ULL, ~0ULL))
				break;
		if (j == count)
			return i * 64;
		*put_back |= j > 0;
		/* The full barrier is for who then looks at the tree's entry. */
		while (j--)
			llfree_cmpxchg(&words[i + j], ~0ULL, 0ULL);
	}
	return -1;
}

static int word_give(u64 *word, u64 bits)
{
	u64 old = llfree_load(word), seen;

	while ((old & bits) == bits) {
		seen = llfree_cmpxchg(word, old, old & ~bits);
		if (seen == old)
			return 0;
		old = seen;
	}
	return -EINVAL;
}

/**
 * llfree_words_give() - clear the bits of 1 << @order pages of an area
 * @words: of the area
 * @bit: of the first page
 * @order: less than LLFREE_AREA_ORDER, or that of an area that is split
 *
 * Return: 0, or -EINVAL if one of them was not set.
 */
int llfree_words_give(u64 *words, unsigned int bit, unsigned int order)
{
	unsigned int count = order > 6 ? 1U << (order - 6) : 1;
	int rc = 0;

	for (words += bit / 64; count-- && !rc; words++)
		rc = word_give(words, run(order) << bit % 64);
	return rc;
}

static long area_take_small(struct llfree_zone *zone, u32 area, u32 first,
			    unsigned int order, bool evicted_too, bool *evicted)
{
	u64 *words = zone->words + (u64)area * LLFREE_AREA_WORDS;
	const u32 pages = 1U << order;
	bool put_back = false;
	int bit = -1;
	u32 i, word;

	if (!area_take(&zone->area[area], pages, evicted_too, evicted))
		return -1;
	if (order > 6) {
		bit = words_take(words, order, &put_back);
		/* Somebody may have looked for a run of a lower order meanwhile. */
		if (put_back)
			tree_forget(&zone->tree[area / LLFREE_TREE_AREAS]);
		if (bit >= 0)
			return (long)area * LLFREE_AREA_PAGES + bit;
	} else {
		for (i = 0; i < LLFREE_AREA_WORDS; i++) {
			word = (first + i) % LLFREE_AREA_WORDS;
			bit = word_take(&words[word], order);
			if (bit >= 0)
				return (long)area * LLFREE_AREA_PAGES +
				       word * 64 + bit;
		}
	}
	/* Enough pages, but no run of them. */
	area_give(&zone->area[area], pages);
	return -1;
}

static long area_take_whole(struct llfree_zone *zone, u32 area,
			    bool evicted_too, bool *evicted)
{
	u16 old = llfree_load(&zone->area[area]), seen;

	while (is_whole(old) && (evicted_too || !(old & LLFREE_EVICTED))) {
		seen = llfree_cmpxchg(&zone->area[area], old,
				      (u16)LLFREE_ALLOCATED);
		if (seen == old) {
			*evicted = old & LLFREE_EVICTED;
			words_fill(zone->words + (u64)area * LLFREE_AREA_WORDS,
				   ~0ULL);
			return (long)area * LLFREE_AREA_PAGES;
		}
		old = seen;
	}
	return -1;
}

/* Two areas are one step: their entries are in the same aligned 32 bits. */
static long area_take_pair(struct llfree_zone *zone, u32 area,
			   bool evicted_too, bool *evicted)
{
	u32 *pair = (u32 *)&zone->area[area];
	u64 *words = zone->words + (u64)area * LLFREE_AREA_WORDS;
	u32 old, seen;

	if (area % 2 || area + 1 >= zone->areas)
		return -1;
	old = llfree_load(pair);
	while (is_whole((u16)old) && is_whole(old >> 16) &&
	       (evicted_too || !((old | old >> 16) & LLFREE_EVICTED))) {
		seen = llfree_cmpxchg(pair, old,
				      LLFREE_ALLOCATED << 16 | LLFREE_ALLOCATED);
		if (seen == old) {
			*evicted = (old | old >> 16) & LLFREE_EVICTED;
			words_fill(words, ~0ULL);
			words_fill(words + LLFREE_AREA_WORDS, ~0ULL);
			return (long)area * LLFREE_AREA_PAGES;
		}
		old = seen;
	}
	return -1;
}

/**
 * llfree_area_take() - allocate 1 << @order pages of an area
 * @zone: where it is
 * @area: which; of two, the first
 * @first: word to begin at
 * @order: at most LLFREE_MAX_ORDER
 * @evicted_too: whether what the host has nothing behind will do
 * @evicted: set to whether it was like that
 *
 * The tree's count has been taken.
 *
 * Return: the first page, counted from the zone's start, or -1.
 */
long llfree_area_take(struct llfree_zone *zone, u32 area, u32 first,
		      unsigned int order, bool evicted_too, bool *evicted)
{
	if (order < LLFREE_AREA_ORDER)
		return area_take_small(zone, area, first, order, evicted_too,
				       evicted);
	if (order == LLFREE_AREA_ORDER)
		return area_take_whole(zone, area, evicted_too, evicted);
	return area_take_pair(zone, area, evicted_too, evicted);
}

/**
 * llfree_area_has_run() - whether 1 << @order pages of an area are free in a row
 * @zone: where it is
 * @area: which
 * @order: less than LLFREE_AREA_ORDER
 *
 * Only looks. What others have counted, but not taken yet, is free.
 *
 * Return: false for what is as a whole somebody's, the host's included.
 */
bool llfree_area_has_run(const struct llfree_zone *zone, u32 area,
			 unsigned int order)
{
	const u64 *words = zone->words + (u64)area * LLFREE_AREA_WORDS;
	const unsigned int count = order > 6 ? 1U << (order - 6) : 1;
	unsigned int i, j;

	if (llfree_load(&zone->area[area]) & LLFREE_ALLOCATED)
		return false;
	for (i = 0; i < LLFREE_AREA_WORDS; i += count) {
		for (j = 0; j < count; j++)
			if (find_run(llfree_load(&words[i + j]), min(order, 6U)) < 0)
				break;
		if (j == count)
			return true;
	}
	return false;
}
