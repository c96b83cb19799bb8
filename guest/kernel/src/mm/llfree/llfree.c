// SPDX-License-Identifier: GPL-2.0-only
/*
 * Allocating and freeing pages; state.h has the entries and their invariants.
 *
 * No lock is taken and nothing is waited for, so both may be called from
 * anywhere but an NMI: there it could be in the middle of itself, which is
 * safe, and may find less than there is.
 */
#include "llfree.h"

/* How often a tree is chosen that turns out not to have what it promised. */
#define CHOICES		4

/* A tree that only the last resort takes from. */
#define UNFIT		INT_MAX
/* All that it has is evicted: the host would have to bring it back. */
#define EVICTED_ONLY	64

static u32 areas_of(const struct llfree_zone *zone, u32 tree)
{
	return min(LLFREE_TREE_AREAS, zone->areas - tree * LLFREE_TREE_AREAS);
}

/* ---- a tree's count ---- */

static bool tree_take(u32 *tree, u32 pages)
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

static void tree_give(u32 *tree, u32 pages)
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

static u32 lacks(u32 tree)
{
	return (tree & LLFREE_TREE_LACKS) >> LLFREE_TREE_LACKS_SHIFT;
}

/* Gives back what was of no use; remembers that there is no run of @order. */
static void tree_give_unused(u32 *tree, unsigned int order)
{
	u32 old = llfree_load(tree), new, seen;

	for (;;) {
		new = old + (1U << order);
		if (!lacks(old) || lacks(old) > order)
			new = (new & ~LLFREE_TREE_LACKS) |
			      order << LLFREE_TREE_LACKS_SHIFT;
		seen = llfree_cmpxchg(tree, old, new);
		if (seen == old)
			return;
		old = seen;
	}
}

static void tree_reserve(u32 *tree, enum llfree_type type)
{
	u32 old = llfree_load(tree), new, seen;

	for (;;) {
		new = (old & ~LLFREE_TREE_TYPE) | LLFREE_TREE_RESERVED |
		      (u32)type << LLFREE_TREE_TYPE_SHIFT;
		seen = llfree_cmpxchg(tree, old, new);
		if (seen == old)
			return;
		old = seen;
	}
}

static void tree_release(u32 *tree)
{
	u32 old = llfree_load(tree), seen;

	for (;;) {
		seen = llfree_cmpxchg(tree, old, old & ~LLFREE_TREE_RESERVED);
		if (seen == old)
			return;
		old = seen;
	}
}

/* ---- the bits of an area ---- */

/* The lowest aligned run of 1 << @order zeros in @word, @order <= 6, or -1. */
static int find_run(u64 word, unsigned int order)
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

static u64 run(unsigned int order)
{
	return order >= 6 ? ~0ULL : (1ULL << (1U << order)) - 1;
}

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

/* Takes whole words, for orders 7 and 8. The first page's bit, or -1. */
static int words_take(u64 *words, unsigned int order)
{
	const unsigned int count = 1U << (order - 6);
	unsigned int i, j;

	for (i = 0; i < LLFREE_AREA_WORDS; i += count) {
		for (j = 0; j < count; j++)
			if (llfree_cmpxchg(&words[i + j], 0ULL, ~0ULL))
				break;
		if (j == count)
			return i * 64;
		while (j--)
			llfree_store(&words[i + j], 0ULL);
	}
	return -1;
}

/* The bits of one's own area, which nobody else changes (L2). */
static void words_fill(u64 *words, u64 value)
{
	unsigned int i;

	for (i = 0; i < LLFREE_AREA_WORDS; i++)
		llfree_store(&words[i], value);
}

/* ---- an area ---- */

static void area_give(u16 *area, u32 pages)
{
	u16 old = llfree_load(area), seen;

	for (;;) {
		seen = llfree_cmpxchg(area, old, (u16)(old + pages));
		if (seen == old)
			return;
		old = seen;
	}
}

static bool is_whole(u16 entry)
{
	return (entry & ~LLFREE_EVICTED) == LLFREE_AREA_PAGES;
}

/* Whether @pages may be taken from an area with this entry. */
static bool offers(u16 entry, u32 pages, bool evicted_too)
{
	return (entry & LLFREE_AREA_FREE) >= pages &&
	       (evicted_too || !(entry & LLFREE_EVICTED));
}

static long area_take_small(struct llfree_zone *zone, u32 area, u32 first,
			    unsigned int order, bool evicted_too, bool *evicted)
{
	u64 *words = zone->words + (u64)area * LLFREE_AREA_WORDS;
	u16 old = llfree_load(&zone->area[area]), seen;
	const u32 pages = 1U << order;
	int bit = -1;
	u32 i, word;

	for (;;) {
		if (!offers(old, pages, evicted_too))
			return -1;
		seen = llfree_cmpxchg(&zone->area[area], old,
				      (u16)((old - pages) & ~LLFREE_EVICTED));
		if (seen == old)
			break;
		old = seen;
	}
	*evicted = old & LLFREE_EVICTED;
	if (order > 6) {
		bit = words_take(words, order);
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

static long area_take(struct llfree_zone *zone, u32 area, u32 first,
		      unsigned int order, bool evicted_too, bool *evicted)
{
	if (order < LLFREE_AREA_ORDER)
		return area_take_small(zone, area, first, order, evicted_too,
				       evicted);
	if (order == LLFREE_AREA_ORDER)
		return area_take_whole(zone, area, evicted_too, evicted);
	return area_take_pair(zone, area, evicted_too, evicted);
}

/* ---- a tree ---- */

/* What is known of a tree's areas. */
struct look {
	u32 whole;	/* entirely free, with the host's memory behind them */
	u32 evicted;
	u32 held;	/* the host's */
};

static struct look look_at(const struct llfree_zone *zone, u32 tree)
{
	const u32 first = tree * LLFREE_TREE_AREAS, count = areas_of(zone, tree);
	struct look look = { };
	u32 i;

	for (i = 0; i < count; i++) {
		const u16 entry = llfree_load(&zone->area[first + i]);

		look.whole += entry == LLFREE_AREA_PAGES;
		look.evicted += entry == (LLFREE_AREA_PAGES | LLFREE_EVICTED);
		look.held += entry == LLFREE_HOST;
	}
	return look;
}

/*
 * Takes from @tree, whose count has been taken, or gives the count back. For
 * less than an area, areas that are in use come first, so that whole ones stay
 * whole.
 */
static long tree_search(struct llfree_zone *zone, u32 tree, unsigned int order,
			bool evicted_too, bool *evicted)
{
	const u32 first = tree * LLFREE_TREE_AREAS, count = areas_of(zone, tree);
	const bool small = order < LLFREE_AREA_ORDER;
	bool whole = false;
	long page;
	u32 i;

	for (i = 0; i < count && small; i++) {
		if (is_whole(llfree_load(&zone->area[first + i]))) {
			whole = true;
			continue;
		}
		page = area_take(zone, first + i, 0, order, evicted_too, evicted);
		if (page >= 0)
			return page;
	}
	for (i = 0; i < count && (whole || !small); i++) {
		page = area_take(zone, first + i, 0, order, evicted_too, evicted);
		if (page >= 0)
			return page;
	}
	if (order && small && !whole)
		tree_give_unused(&zone->tree[tree], order);
	else
		tree_give(&zone->tree[tree], 1U << order);
	return -1;
}

static long tree_get(struct llfree_zone *zone, u32 tree, unsigned int order,
		     bool evicted_too, bool *evicted)
{
	if (!tree_take(&zone->tree[tree], 1U << order))
		return -1;
	return tree_search(zone, tree, order, evicted_too, evicted);
}

/* Goes on where the last allocation of the type was; -1 if that is used up. */
static long get_again(struct llfree_zone *zone, u32 word, unsigned int order,
		      bool *evicted)
{
	const u32 area = word / LLFREE_AREA_WORDS;
	const u32 tree = area / LLFREE_TREE_AREAS;
	long page;

	if (!tree_take(&zone->tree[tree], 1U << order))
		return -1;
	/* An area that has become whole stays so if another one will do. */
	if (order >= LLFREE_AREA_ORDER ||
	    !is_whole(llfree_load(&zone->area[area]))) {
		page = area_take(zone, area, word % LLFREE_AREA_WORDS, order,
				 false, evicted);
		if (page >= 0)
			return page;
	}
	return tree_search(zone, tree, order, false, evicted);
}

/*
 * How bad a tree is to begin with, 0 for none better, UNFIT for not at all.
 * What the host need not bring back comes before what it has to; a tree of the
 * own type before an empty one before others'; a half full one before a nearly
 * empty or nearly full one: the one is soon free, the other soon used up.
 */
static int badness(const struct llfree_zone *zone, u32 tree, unsigned int order,
		   enum llfree_type type)
{
	const u32 entry = llfree_load(&zone->tree[tree]);
	const u32 free = entry & LLFREE_TREE_FREE;
	struct look look;
	int badness = 0;
	u32 pages;

	if (free < 1U << order)
		return UNFIT;
	look = look_at(zone, tree);
	if (order >= LLFREE_AREA_ORDER ||
	    (lacks(entry) && order >= lacks(entry))) {
		if (!look.whole && !look.evicted)
			return UNFIT;
		if (!look.whole)
			badness += EVICTED_ONLY;
	} else if (free <= look.evicted * LLFREE_AREA_PAGES) {
		badness += EVICTED_ONLY;
	}
	pages = (areas_of(zone, tree) - look.held) * LLFREE_AREA_PAGES;
	if (entry & LLFREE_TREE_RESERVED)
		badness += 32;
	if (free >= pages)
		badness += 8;
	else if ((entry & LLFREE_TREE_TYPE) >> LLFREE_TREE_TYPE_SHIFT != type)
		badness += 16;
	else if (free > pages - pages / 4)
		badness += 4;
	else if (free < pages / 8)
		badness += 2;
	return badness;
}

/* The best tree to go on with, from @start around; UNFIT in @worst if none. */
static u32 choose(const struct llfree_zone *zone, u32 start, unsigned int order,
		  enum llfree_type type, int *worst)
{
	u32 i, tree = start, chosen = start;

	*worst = UNFIT;
	for (i = 0; i < zone->trees && *worst; i++) {
		const int bad = badness(zone, tree, order, type);

		if (bad < *worst) {
			*worst = bad;
			chosen = tree;
		}
		if (++tree == zone->trees)
			tree = 0;
	}
	return chosen;
}

/* The last resort: afterwards there was none at the moment each was looked at. */
static long get_anywhere(struct llfree_zone *zone, u32 start,
			 unsigned int order, bool *evicted)
{
	u32 i, tree = start;
	long page;

	for (i = 0; i < zone->trees; i++, tree++) {
		if (tree == zone->trees)
			tree = 0;
		/*
		 * Who takes the count of a whole area and finds none, has kept
		 * single pages from others meanwhile, who would fail.
		 */
		if (order >= LLFREE_AREA_ORDER) {
			const struct look look = look_at(zone, tree);

			if (!look.whole && !look.evicted)
				continue;
		}
		page = tree_get(zone, tree, order, true, evicted);
		if (page >= 0)
			return page;
	}
	return -ENOMEM;
}

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
long llfree_get(struct llfree_zone *zone, unsigned int order,
		enum llfree_type type, bool *evicted)
{
	const u32 hint = llfree_load(&zone->hint[type]);
	const u32 reserved = hint ? (hint - 1) / LLFREE_AREA_WORDS /
				    LLFREE_TREE_AREAS : 0;
	u32 tree, start = reserved, choices, now;
	long page;
	int bad;

	*evicted = false;
	if (hint) {
		page = get_again(zone, hint - 1, order, evicted);
		if (page >= 0)
			goto out;
	}
	for (choices = 0; choices < CHOICES; choices++) {
		tree = choose(zone, start, order, type, &bad);
		if (bad == UNFIT)
			break;
		page = tree_get(zone, tree, order, bad >= EVICTED_ONLY, evicted);
		if (page >= 0) {
			/* What has no run of this order may serve other types. */
			if (hint)
				tree_release(&zone->tree[reserved]);
			tree_reserve(&zone->tree[tree], type);
			goto out;
		}
		start = tree + 1 < zone->trees ? tree + 1 : 0;
	}
	page = get_anywhere(zone, start, order, evicted);
	if (page < 0)
		return page;
out:
	now = (u32)(page / 64) + 1;
	if (now != hint)
		llfree_store(&zone->hint[type], now);
	return page;
}

/**
 * llfree_get_page() - allocate a certain page
 * @zone: where it is
 * @page: counted from the zone's start
 *
 * Return: false if it was not free, or the host held it.
 */
bool llfree_get_page(struct llfree_zone *zone, u64 page)
{
	u16 *area = &zone->area[page / LLFREE_AREA_PAGES], entry, seen;
	u32 *tree = &zone->tree[page / LLFREE_TREE_PAGES];
	u64 *word = &zone->words[page / 64], old, was;
	const u64 bit = 1ULL << page % 64;

	if (!tree_take(tree, 1))
		return false;
	entry = llfree_load(area);
	for (;;) {
		if (!offers(entry, 1, true))
			goto out_tree;
		seen = llfree_cmpxchg(area, entry,
				      (u16)((entry - 1) & ~LLFREE_EVICTED));
		if (seen == entry)
			break;
		entry = seen;
	}
	old = llfree_load(word);
	while (!(old & bit)) {
		was = llfree_cmpxchg(word, old, old | bit);
		if (was == old)
			return true;
		old = was;
	}
	area_give(area, 1);
out_tree:
	tree_give(tree, 1);
	return false;
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
	const u32 pages = 1U << order, area = page / LLFREE_AREA_PAGES;
	u64 *words = zone->words + page / 64;
	unsigned int count = order > 6 ? 1U << (order - 6) : 1;
	u16 entry, seen;
	int rc;

	if (order > LLFREE_MAX_ORDER || page & (pages - 1) ||
	    page + pages > (u64)zone->areas * LLFREE_AREA_PAGES)
		return -EINVAL;
	if (order > LLFREE_AREA_ORDER) {
		rc = llfree_put(zone, page, order - 1);
		return rc ? rc : llfree_put(zone, page + pages / 2, order - 1);
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
	while (count--) {
		rc = word_give(words++, run(order) << page % 64);
		if (rc)
			return rc;
	}
	area_give(&zone->area[area], pages);
	tree_give(&zone->tree[area / LLFREE_TREE_AREAS], pages);
	return 0;
}
