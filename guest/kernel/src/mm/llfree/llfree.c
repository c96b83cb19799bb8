// SPDX-License-Identifier: GPL-2.0-only
/*
 * Allocating pages: which tree to take them from. state.h has the entries and
 * their invariants.
 *
 * Neither here nor in put.c is a lock taken or anything waited for: they may be
 * called from anywhere, even in the middle of themselves.
 */
#include "entries.h"

/* How many trees may turn out not to have what they promised. */
#define CHOICES		5

/* A tree that only the last resort takes from. */
#define UNFIT		INT_MAX
/* All that it has is evicted: the host would have to bring it back. */
#define EVICTED_ONLY	64
/* It would have pages that move beside some that do not. */
#define MIXED		128

static u32 areas_of(const struct llfree_zone *zone, u32 tree)
{
	return min(LLFREE_TREE_AREAS, zone->areas - tree * LLFREE_TREE_AREAS);
}

/* Pages of a tree that the host does not hold, by the tree's @entry. */
static u32 pages_of(const struct llfree_zone *zone, u32 tree, u32 entry)
{
	const u32 held = llfree_count(entry & LLFREE_TREE_HELD);

	return (areas_of(zone, tree) - held) * LLFREE_AREA_PAGES;
}

/* Has other types go on elsewhere, without a look at what they take right now. */
static void send_away(struct llfree_zone *zone, u32 tree, enum llfree_type type)
{
	u32 other, hint;

	for (other = 0; other < LLFREE_TYPES; other++) {
		hint = llfree_load(&zone->hint[other]);
		if (other != type && hint && tree_of_word(hint - 1) == tree)
			llfree_cmpxchg(&zone->hint[other], hint, 0);
	}
}

/* Whether a tree of which @free of @pages are free is nearly nobody's. */
static bool is_nearly_free(u32 free, u32 pages)
{
	return free >= pages - pages / 4;
}

/*
 * Has @type go on in a tree that it has just taken @pages from. What is not
 * movable stays behind when the rest has gone, so a tree is only called movable
 * if it has never had much else since most of it was free. Not since all of it
 * was: a few pages of a slab would have all that comes later mix with what moves
 * there, for good. Whoever went on there before the tree was another type's no
 * longer does.
 */
static void tree_reserve(struct llfree_zone *zone, u32 tree,
			 enum llfree_type type, u32 pages)
{
	u32 *entry = &zone->tree[tree], old = llfree_load(entry), new, seen, now;
	u32 free, all;

	for (;;) {
		now = type_of(old);
		free = (old & LLFREE_TREE_FREE) + pages;
		all = pages_of(zone, tree, old);
		if (free >= all || now > type ||
		    (type == LLFREE_MOVABLE && is_nearly_free(free, all)))
			now = type;
		new = (old & ~LLFREE_TREE_TYPE) | LLFREE_TREE_RESERVED |
		      now << LLFREE_TREE_TYPE_SHIFT;
		seen = llfree_cmpxchg(entry, old, new);
		if (seen == old)
			break;
		old = seen;
	}
	if (now != type_of(old))
		send_away(zone, tree, type);
}

static void tree_release(u32 *entry)
{
	u32 old = llfree_load(entry), seen;

	for (;;) {
		seen = llfree_cmpxchg(entry, old, old & ~LLFREE_TREE_RESERVED);
		if (seen == old)
			return;
		old = seen;
	}
}

/* ---- a tree ---- */

static struct llfree_areas look_at(const struct llfree_zone *zone, u32 tree)
{
	return areas_in(zone, tree * LLFREE_TREE_AREAS, areas_of(zone, tree));
}

/* Whether single pages of a tree are left for others while blocks are looked for. */
static bool has_plenty(u32 entry)
{
	return (entry & LLFREE_TREE_FREE) >= LLFREE_AREA_PAGES;
}

/* Whether a tree has a run of @order; @to_take: one that can be had now. */
static bool has_run(const struct llfree_zone *zone, u32 tree, unsigned int order,
		    bool to_take)
{
	const u32 first = tree * LLFREE_TREE_AREAS, count = areas_of(zone, tree);
	u32 i;

	for (i = 0; i < count; i++)
		if ((!to_take ||
		     offers(llfree_load(&zone->area[first + i]), 1U << order, true)) &&
		    llfree_area_has_run(zone, first + i, order))
			return true;
	return false;
}

/*
 * Remembers that a tree has no run of @order, in which none was found. The entry
 * says so first, and then the bits are looked at, with the exchange's full barrier
 * between the two. What clears bits is a full barrier as well, and the tree's entry
 * comes after it: so either the bits are seen here, or who has cleared them forgets
 * what was written. That goes for frees, for the host, which gives areas back, and
 * for bits that were set for a moment. It is not asked how many pages of an area
 * are counted: who has taken the count of some may give it up.
 */
static void tree_remember(const struct llfree_zone *zone, u32 tree,
			  unsigned int order)
{
	u32 *entry = &zone->tree[tree], old = llfree_load(entry), new, seen;

	while (!lacks(old) || lacks(old) > order) {
		new = (old & ~LLFREE_TREE_LACKS) | order << LLFREE_TREE_LACKS_SHIFT;
		seen = llfree_cmpxchg(entry, old, new);
		if (seen == old)
			break;
		old = seen;
	}
	if (has_run(zone, tree, order, false))
		tree_forget(entry);
}

/*
 * Whether it is worth while to take the count of so many pages from a tree. Who
 * takes that of a block and finds none, has kept single pages from others
 * meanwhile, who would fail. So bits and entries are looked at first, unless there
 * are single pages enough for everybody.
 */
static bool promises(const struct llfree_zone *zone, u32 tree, unsigned int order)
{
	struct llfree_areas look;

	if (!order || (order <= 6 && has_plenty(llfree_load(&zone->tree[tree]))))
		return true;
	if (order < LLFREE_AREA_ORDER) {
		if (has_run(zone, tree, order, false))
			return true;
		tree_remember(zone, tree, order);
		return false;
	}
	/* Two areas that are no pair are no reason. */
	if (order > LLFREE_AREA_ORDER)
		return llfree_tree_has(zone, tree, order);
	look = look_at(zone, tree);
	return look.whole || look.evicted;
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
		page = llfree_area_take(zone, first + i, 0, order, evicted_too, evicted);
		if (page >= 0)
			return page;
	}
	for (i = 0; i < count && (whole || !small); i++) {
		page = llfree_area_take(zone, first + i, 0, order, evicted_too, evicted);
		if (page >= 0)
			return page;
	}
	tree_return(&zone->tree[tree], 1U << order);
	if (order && small && !whole)
		tree_remember(zone, tree, order);
	return -1;
}

static long tree_get(struct llfree_zone *zone, u32 tree, unsigned int order,
		     bool evicted_too, bool *evicted)
{
	if (!promises(zone, tree, order) ||
	    !tree_take(&zone->tree[tree], 1U << order))
		return -1;
	return tree_search(zone, tree, order, evicted_too, evicted);
}

/*
 * The next area of a tree, from @area around, that is whole and has the host's
 * memory behind it. Others' count is only taken once one was seen.
 */
static long get_next_area(struct llfree_zone *zone, u32 area, bool *evicted)
{
	const u32 tree = area / LLFREE_TREE_AREAS, first = tree * LLFREE_TREE_AREAS;
	const u32 end = first + areas_of(zone, tree);
	bool is_counted = false;
	long page;
	u32 i;

	for (i = first; i < end; i++, area++) {
		if (area == end)
			area = first;
		if (llfree_load(&zone->area[area]) != LLFREE_AREA_PAGES)
			continue;
		if (!is_counted && !tree_take(&zone->tree[tree], LLFREE_AREA_PAGES))
			return -1;
		is_counted = true;
		page = llfree_area_take(zone, area, 0, LLFREE_AREA_ORDER, false,
					evicted);
		if (page >= 0)
			return page;
	}
	if (is_counted)
		tree_return(&zone->tree[tree], LLFREE_AREA_PAGES);
	return -1;
}

/* Goes on where the last allocation of the type was; -1 if that is used up. */
static long get_again(struct llfree_zone *zone, u32 word, unsigned int order,
		      bool *evicted)
{
	const u32 area = word / LLFREE_AREA_WORDS, tree = tree_of_word(word);
	long page;

	if (order == LLFREE_AREA_ORDER)
		return get_next_area(zone, area, evicted);
	if (!promises(zone, tree, order) ||
	    !tree_take(&zone->tree[tree], 1U << order))
		return -1;
	/* An area that has become whole stays so if another one will do. */
	if (order > LLFREE_AREA_ORDER ||
	    !is_whole(llfree_load(&zone->area[area]))) {
		page = llfree_area_take(zone, area, word % LLFREE_AREA_WORDS,
					order, false, evicted);
		if (page >= 0)
			return page;
	}
	return tree_search(zone, tree, order, false, evicted);
}

/*
 * Would pages that stay go back to a tree with this entry, where movable ones have
 * come and gone again? Some of them may have stayed there.
 */
static bool is_home(u32 entry, u32 pages, enum llfree_type type)
{
	return type == LLFREE_UNMOVABLE && type_of(entry) == LLFREE_MOVABLE &&
	       !(entry & LLFREE_TREE_RESERVED) &&
	       is_nearly_free(entry & LLFREE_TREE_FREE, pages);
}

/* Would pages of @type in a tree of type @of keep areas from becoming free? */
static bool mixes(enum llfree_type of, enum llfree_type type)
{
	return type != LLFREE_HUGE &&
	       (of == LLFREE_UNMOVABLE || type == LLFREE_UNMOVABLE);
}

/*
 * How bad a tree is to begin with, 0 for none better, UNFIT for not at all or
 * no better than @limit. What the host need not bring back comes before what it
 * has to; a tree of the own type, or nearly so, before an empty one before
 * others', above all those where they go on; a half full one before a nearly empty
 * or nearly full one: the one is soon free, the other soon used up. Pages that move
 * and pages that do not come together last of all, even if the host has to bring
 * something back for that: it does so once, and an area with one page that stays is
 * kept from it, and from huge pages, for good.
 */
static int badness(const struct llfree_zone *zone, u32 tree, unsigned int order,
		   enum llfree_type type, int limit)
{
	const u32 entry = llfree_load(&zone->tree[tree]);
	const u32 free = entry & LLFREE_TREE_FREE;
	const enum llfree_type of = type_of(entry);
	struct llfree_areas look;
	int badness = 0;
	u32 pages;

	if (free < 1U << order)
		return UNFIT;
	pages = pages_of(zone, tree, entry);
	if (entry & LLFREE_TREE_RESERVED && of != type)
		badness += 32;
	if (free >= pages)
		badness += 8;
	else if (is_home(entry, pages, type))
		badness += 6;
	else if (of != type)
		badness += mixes(of, type) ? MIXED : 16;
	else if (free > pages - pages / 4)
		badness += 4;
	else if (free < pages / 8)
		badness += 2;
	/* Before its areas are looked at, which takes longer than all else. */
	if (badness >= limit)
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
	return badness;
}

/*
 * What becomes of how bad a tree is when it has failed: the first time it was to
 * spare the host, if it could, so what it has may be evicted.
 */
static int after_failures(int bad, u32 tree, const u32 *failed, u32 failures)
{
	u32 i;

	for (i = 0; i < failures && bad != UNFIT; i++)
		if (failed[i] == tree)
			bad = bad & EVICTED_ONLY ? UNFIT : bad | EVICTED_ONLY;
	return bad;
}

/*
 * The best tree to go on with, from @start around, after those in @failed were
 * tried; UNFIT in @worst if none.
 */
static u32 choose(const struct llfree_zone *zone, u32 start, unsigned int order,
		  enum llfree_type type, const u32 *failed, u32 failures,
		  int *worst)
{
	u32 i, tree = start, chosen = start;

	*worst = UNFIT;
	for (i = 0; i < zone->trees && *worst; i++) {
		const int bad = after_failures(badness(zone, tree, order, type,
						       *worst),
					       tree, failed, failures);

		if (bad < *worst) {
			*worst = bad;
			chosen = tree;
		}
		if (++tree == zone->trees)
			tree = 0;
	}
	return chosen;
}

/*
 * The last resort: afterwards there was none at the moment each was looked at, as
 * far as trees remember. They may be wrong about what is just being freed.
 */
static long get_anywhere(struct llfree_zone *zone, u32 start,
			 unsigned int order, bool *evicted)
{
	u32 i, tree = start;
	long page;

	for (i = 0; i < zone->trees; i++, tree++) {
		if (tree == zone->trees)
			tree = 0;
		if (!llfree_tree_has(zone, tree, order))
			continue;
		page = tree_get(zone, tree, order, true, evicted);
		if (page >= 0)
			return page;
	}
	return -ENOMEM;
}

/*
 * The usual case, which is to be fast: from the word that the last pages came
 * from. -1 if that is used up, or somebody else is at it.
 */
static __always_inline long get_here(struct llfree_zone *zone, u32 word,
				     unsigned int order)
{
	u32 *tree = &zone->tree[tree_of_word(word)];
	u16 *area = &zone->area[word / LLFREE_AREA_WORDS], entry;
	u64 bits = llfree_load(&zone->words[word]), was;
	const u32 count = llfree_load(tree), pages = 1U << order;
	int bit = find_run(bits, order);

	if (bit < 0 || (count & LLFREE_TREE_FREE) < pages ||
	    llfree_cmpxchg(tree, count, count - pages) != count)
		return -1;
	entry = llfree_load(area);
	/*
	 * An area that has become whole stays so if another one will do. None
	 * will where the tree is free.
	 */
	if (entry < pages || entry > LLFREE_AREA_PAGES ||
	    (entry == LLFREE_AREA_PAGES &&
	     (count & LLFREE_TREE_FREE) != LLFREE_TREE_PAGES) ||
	    llfree_cmpxchg(area, entry, (u16)(entry - pages)) != entry)
		goto out_tree;
	do {
		was = bits;
		bits = llfree_cmpxchg(&zone->words[word], was,
				      was | run(order) << bit);
		if (bits == was)
			return (long)word * 64 + bit;
		bit = find_run(bits, order);
	} while (bit >= 0);
	area_give(area, pages);
out_tree:
	tree_return(tree, pages);
	return -1;
}

/*
 * Has @type go on where @page is, which it has just been given; @hint is where it
 * was going on. Reserved first: a tree stays so only as long as it is in a hint,
 * so whoever finds that another one was faster gives it back. If that one has gone
 * on in the same tree, it loses only what others think of it.
 */
static void go_on_at(struct llfree_zone *zone, enum llfree_type type, u32 hint,
		     u32 page, u32 pages)
{
	const u32 now = page / 64 + 1, tree = tree_of_word(now - 1);
	const bool same = hint && tree_of_word(hint - 1) == tree;

	if (!same || type_of(llfree_load(&zone->tree[tree])) > type)
		tree_reserve(zone, tree, type, pages);
	if (now == hint)
		return;
	if (llfree_cmpxchg(&zone->hint[type], hint, now) != hint)
		tree_release(&zone->tree[tree]);
	else if (hint && !same)
		tree_release(&zone->tree[tree_of_word(hint - 1)]);
}

/*
 * From the tree that is best for it, or from any; where it was going on, at @hint,
 * only what is evicted is left.
 */
static long get_elsewhere(struct llfree_zone *zone, u32 hint, unsigned int order,
			  enum llfree_type type, bool *evicted)
{
	u32 start = hint ? tree_of_word(hint - 1) : 0, tree;
	u32 failed[CHOICES] = { start }, failures;
	long page;
	int bad;

	for (failures = hint ? 1 : 0; failures < CHOICES; failures++) {
		tree = choose(zone, start, order, type, failed, failures, &bad);
		if (bad == UNFIT)
			break;
		page = tree_get(zone, tree, order, bad & EVICTED_ONLY, evicted);
		if (page >= 0)
			return page;
		failed[failures] = tree;
		start = tree + 1 < zone->trees ? tree + 1 : 0;
	}
	return get_anywhere(zone, start, order, evicted);
}

/* Anything else. */
static noinline long get(struct llfree_zone *zone, unsigned int order,
			 enum llfree_type type, bool *evicted)
{
	const u32 hint = llfree_load(&zone->hint[type]);
	long page = -1;

	*evicted = false;
	if (hint)
		page = get_again(zone, hint - 1, order, evicted);
	/* What has no run of this order may serve other types. */
	if (page < 0)
		page = get_elsewhere(zone, hint, order, type, evicted);
	if (page >= 0)
		go_on_at(zone, type, hint, (u32)page, 1U << order);
	return page;
}

/**
 * llfree_get_here() - allocate a page where the last one came from
 * @zone: where
 * @type: what for
 *
 * The usual case by itself, which needs few registers.
 *
 * Return: the page, counted from the zone's start, or -1: llfree_get_any() may
 * have one.
 */
long llfree_get_here(struct llfree_zone *zone, enum llfree_type type)
{
	const u32 hint = llfree_load(&zone->hint[type]);

	return hint ? get_here(zone, hint - 1, 0) : -1;
}

/**
 * llfree_get_any() - allocate 1 << @order pages anywhere
 * @zone: where
 * @order: at most LLFREE_MAX_ORDER
 * @type: what for
 * @evicted: set to whether the host has nothing behind some of them; those
 *	read as zeros
 *
 * Return: the first page, counted from the zone's start, or -ENOMEM.
 */
long llfree_get_any(struct llfree_zone *zone, unsigned int order,
		    enum llfree_type type, bool *evicted)
{
	const u32 hint = llfree_load(&zone->hint[type]);
	long page = -1;

	if (hint && order && order <= 6)
		page = get_here(zone, hint - 1, order);
	if (page < 0)
		return get(zone, order, type, evicted);
	*evicted = false;
	return page;
}

/**
 * llfree_look_for() - whether 1 << @order pages are free in a row
 * @zone: where
 * @order: at most LLFREE_MAX_ORDER
 *
 * Not only as far as trees remember, which forget it with each page that is freed:
 * where pages come and go, llfree_has() says yes at nearly any time. In 20 GiB it
 * takes half a millisecond if pages have been freed in all trees since the last
 * look, and else a fiftieth of that.
 *
 * Return: false if no tree had them at the moment it was looked at.
 */
bool llfree_look_for(const struct llfree_zone *zone, unsigned int order)
{
	u32 tree;

	for (tree = 0; tree < zone->trees; tree++) {
		if (!llfree_tree_has(zone, tree, order))
			continue;
		if (order >= LLFREE_AREA_ORDER || has_run(zone, tree, order, true))
			return true;
		/* Nobody has to look again before something is freed. */
		if (order)
			tree_remember(zone, tree, order);
	}
	return false;
}
