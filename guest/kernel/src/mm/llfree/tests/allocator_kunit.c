// SPDX-License-Identifier: GPL-2.0-only
/*
 * KUnit tests of the allocator, on a state that no zone and no host uses. What
 * happens when several use one at once, host included, is tested in programs.
 */
#include "../entries.h"
#include "zone_kunit.h"

static long get(struct llfree_zone *zone, unsigned int order)
{
	bool evicted;

	return llfree_get(zone, order, order >= LLFREE_AREA_ORDER ?
			  LLFREE_HUGE : LLFREE_MOVABLE, &evicted);
}

static void expect_all_free(struct kunit *test, struct llfree_zone *zone)
{
	u32 area;

	KUNIT_EXPECT_EQ(test, PAGES, llfree_free_pages(zone));
	for (area = 0; area < AREAS; area++)
		KUNIT_EXPECT_EQ(test, LLFREE_AREA_PAGES, zone->area[area]);
}

static void every_order_is_allocated_and_freed(struct kunit *test)
{
	struct llfree_zone *zone = new_free_zone(test);
	unsigned int order;
	u32 pages, i;
	long page;

	for (order = 0; order <= LLFREE_MAX_ORDER; order++) {
		pages = 1U << order;
		page = get(zone, order);
		KUNIT_ASSERT_GE(test, page, 0);
		KUNIT_EXPECT_TRUE(test, IS_ALIGNED(page, pages));
		KUNIT_EXPECT_EQ(test, PAGES - pages, llfree_free_pages(zone));
		for (i = 0; i < pages; i++)
			KUNIT_ASSERT_FALSE(test, llfree_is_free(zone, page + i));
		put(test, zone, page, order);
		expect_all_free(test, zone);
	}
}

static void all_pages_are_allocated_once(struct kunit *test)
{
	struct llfree_zone *zone = new_free_zone(test);
	unsigned long *seen = kunit_kcalloc(test, BITS_TO_LONGS(PAGES),
					    sizeof(*seen), GFP_KERNEL);
	u32 left;
	long page;

	KUNIT_ASSERT_NOT_NULL(test, seen);
	for (left = PAGES; left; left--) {
		page = get(zone, 0);
		KUNIT_ASSERT_GE(test, page, 0);
		KUNIT_ASSERT_FALSE(test, __test_and_set_bit(page, seen));
	}
	KUNIT_EXPECT_EQ(test, (long)-ENOMEM, get(zone, 0));
	KUNIT_EXPECT_EQ(test, 0ULL, llfree_free_pages(zone));
}

static void blocks_are_freed_in_parts_of_every_order(struct kunit *test)
{
	struct llfree_zone *zone = new_free_zone(test);
	unsigned int order, part;
	long page, at;

	for (order = 1; order <= LLFREE_MAX_ORDER; order++) {
		for (part = 0; part < order; part++) {
			page = get(zone, order);
			KUNIT_ASSERT_GE(test, page, 0);
			for (at = page; at < page + (1L << order); at += 1L << part)
				put(test, zone, at, part);
			expect_all_free(test, zone);
		}
	}
}

static void parts_are_freed_as_blocks_of_every_order(struct kunit *test)
{
	struct llfree_zone *zone = new_zone(test);
	unsigned int order;
	u64 at;

	for (order = 0; order <= LLFREE_AREA_ORDER; order++) {
		for (at = 0; at < PAGES; at += 1ULL << order)
			put(test, zone, at, order);
		expect_all_free(test, zone);
		for (at = 0; at < PAGES; at++)
			KUNIT_ASSERT_TRUE(test, llfree_get_page(zone, at));
		KUNIT_EXPECT_EQ(test, 0ULL, llfree_free_pages(zone));
	}
}

static void a_certain_page_is_allocated_once(struct kunit *test)
{
	struct llfree_zone *zone = new_free_zone(test);

	KUNIT_EXPECT_TRUE(test, llfree_get_page(zone, 777));
	KUNIT_EXPECT_FALSE(test, llfree_is_free(zone, 777));
	KUNIT_EXPECT_TRUE(test, llfree_is_free(zone, 776));
	KUNIT_EXPECT_FALSE(test, llfree_get_page(zone, 777));
	KUNIT_EXPECT_EQ(test, PAGES - 1, llfree_free_pages(zone));
	put(test, zone, 777, 0);
	expect_all_free(test, zone);
}

/* As the host leaves an area that it has discarded and given back. */
static void evict(struct llfree_zone *zone, u32 area)
{
	zone->area[area] |= LLFREE_EVICTED;
}

static void evicted_areas_come_last(struct kunit *test)
{
	const unsigned int kept = 10;
	struct llfree_zone *zone = new_free_zone(test);
	bool evicted;
	long page;
	u32 i;

	for (i = 0; i < AREAS; i++)
		if (i != kept)
			evict(zone, i);

	page = llfree_get(zone, LLFREE_AREA_ORDER, LLFREE_HUGE, &evicted);
	KUNIT_EXPECT_EQ(test, kept, page / LLFREE_AREA_PAGES);
	KUNIT_EXPECT_FALSE(test, evicted);
	put(test, zone, page, LLFREE_AREA_ORDER);

	for (i = 0; i < LLFREE_AREA_PAGES; i++) {
		page = llfree_get(zone, 0, LLFREE_UNMOVABLE, &evicted);
		KUNIT_ASSERT_EQ(test, kept, page / LLFREE_AREA_PAGES);
		KUNIT_ASSERT_FALSE(test, evicted);
	}

	page = llfree_get(zone, 0, LLFREE_UNMOVABLE, &evicted);
	KUNIT_ASSERT_GE(test, page, 0);
	KUNIT_EXPECT_TRUE(test, evicted);
	KUNIT_EXPECT_EQ(test, LLFREE_AREA_PAGES - 1,
			zone->area[page / LLFREE_AREA_PAGES]);

	/* Its neighbours have the host's memory behind them from now on. */
	KUNIT_ASSERT_GE(test, llfree_get(zone, 0, LLFREE_UNMOVABLE, &evicted), 0);
	KUNIT_EXPECT_FALSE(test, evicted);
}

static void nothing_is_allocated_of_what_the_host_holds(struct kunit *test)
{
	struct llfree_zone *zone = new_free_zone(test);
	u32 area, pages = 0;

	for (area = 0; area < AREAS - 1; area++)
		hold(zone, area);
	KUNIT_EXPECT_EQ(test, LLFREE_AREA_PAGES, llfree_free_pages(zone));
	KUNIT_EXPECT_EQ(test, PAGES, llfree_unused_pages(zone));
	KUNIT_EXPECT_EQ(test, -EINVAL, llfree_put(zone, 0, 0));
	KUNIT_EXPECT_EQ(test, -EINVAL, llfree_put(zone, 0, LLFREE_AREA_ORDER));
	KUNIT_EXPECT_FALSE(test, llfree_get_page(zone, 0));
	while (get(zone, 0) >= 0)
		pages++;
	KUNIT_EXPECT_EQ(test, LLFREE_AREA_PAGES, pages);
}

static void a_tree_remembers_what_it_lacks_until_a_free(struct kunit *test)
{
	struct llfree_zone *zone = new_zone(test);
	u32 page;

	/* Every other page of the first tree. */
	for (page = 0; page < LLFREE_TREE_PAGES; page += 2)
		put(test, zone, page, 0);
	KUNIT_EXPECT_EQ(test, 0U, lacks(zone->tree[0]));
	KUNIT_EXPECT_TRUE(test, llfree_has(zone, 3));

	KUNIT_EXPECT_EQ(test, (long)-ENOMEM, get(zone, 3));
	KUNIT_EXPECT_EQ(test, 3U, lacks(zone->tree[0]));
	KUNIT_EXPECT_FALSE(test, llfree_has(zone, 3));
	KUNIT_EXPECT_TRUE(test, llfree_has(zone, 2));

	KUNIT_EXPECT_EQ(test, (long)-ENOMEM, get(zone, 1));
	KUNIT_EXPECT_EQ(test, 1U, lacks(zone->tree[0]));
	KUNIT_EXPECT_FALSE(test, llfree_has(zone, 1));
	KUNIT_EXPECT_TRUE(test, llfree_has(zone, 0));
	KUNIT_EXPECT_GE(test, get(zone, 0), 0);
	KUNIT_EXPECT_EQ(test, 1U, lacks(zone->tree[0]));

	put(test, zone, 1001, 0);
	KUNIT_EXPECT_EQ(test, 0U, lacks(zone->tree[0]));
	KUNIT_EXPECT_EQ(test, 1000L, get(zone, 1));
}

static void a_look_is_not_misled_by_what_is_freed_elsewhere(struct kunit *test)
{
	struct llfree_zone *zone = new_zone(test);
	u32 page;

	for (page = 0; page < LLFREE_TREE_PAGES; page += 2)
		put(test, zone, page, 0);
	KUNIT_EXPECT_TRUE(test, llfree_has(zone, 3));
	KUNIT_EXPECT_FALSE(test, llfree_look_for(zone, 3));
	/* It is not looked for again before something is freed. */
	KUNIT_EXPECT_FALSE(test, llfree_has(zone, 3));

	put(test, zone, 1001, 0);
	KUNIT_EXPECT_TRUE(test, llfree_has(zone, 3));
	KUNIT_EXPECT_FALSE(test, llfree_look_for(zone, 3));
	KUNIT_EXPECT_FALSE(test, llfree_look_for(zone, 8));
	KUNIT_EXPECT_FALSE(test, llfree_look_for(zone, 9));
	KUNIT_EXPECT_TRUE(test, llfree_look_for(zone, 1));
	KUNIT_EXPECT_TRUE(test, llfree_look_for(zone, 0));

	for (page = 1; page < LLFREE_AREA_PAGES; page += 2)
		put(test, zone, page, 0);
	KUNIT_EXPECT_TRUE(test, llfree_look_for(zone, 8));
	KUNIT_EXPECT_TRUE(test, llfree_look_for(zone, 9));
	KUNIT_EXPECT_FALSE(test, llfree_look_for(zone, 10));
}

static void what_is_out_of_bounds_is_not_freed(struct kunit *test)
{
	struct llfree_zone *zone = new_zone(test);

	KUNIT_EXPECT_EQ(test, -EINVAL, llfree_put(zone, PAGES, 0));
	KUNIT_EXPECT_EQ(test, -EINVAL, llfree_put(zone, U64_MAX, 0));
	KUNIT_EXPECT_EQ(test, -EINVAL,
			llfree_put(zone, PAGES - LLFREE_AREA_PAGES,
				   LLFREE_MAX_ORDER));
	KUNIT_EXPECT_EQ(test, -EINVAL, llfree_put(zone, 1, 1));
	KUNIT_EXPECT_EQ(test, -EINVAL,
			llfree_put(zone, LLFREE_AREA_PAGES / 2, LLFREE_AREA_ORDER));
	KUNIT_EXPECT_EQ(test, -EINVAL,
			llfree_put(zone, 0, LLFREE_MAX_ORDER + 1));
	KUNIT_EXPECT_EQ(test, 0ULL, llfree_free_pages(zone));
}

static void what_is_out_of_bounds_is_not_free(struct kunit *test)
{
	static const u64 outside[] = { PAGES, PAGES + 1, BIT_ULL(40), U64_MAX };
	struct llfree_zone *zone = new_free_zone(test);
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(outside); i++) {
		KUNIT_EXPECT_FALSE(test, llfree_is_free(zone, outside[i]));
		KUNIT_EXPECT_FALSE(test, llfree_get_page(zone, outside[i]));
	}
	expect_all_free(test, zone);
}

static void what_is_free_is_not_freed_again(struct kunit *test)
{
	struct llfree_zone *zone = new_free_zone(test);
	unsigned int order, again;
	long page;

	for (order = 0; order <= LLFREE_MAX_ORDER; order++) {
		page = get(zone, order);
		KUNIT_ASSERT_GE(test, page, 0);
		put(test, zone, page, order);
		for (again = 0; again <= order; again++)
			KUNIT_EXPECT_EQ(test, -EINVAL,
					llfree_put(zone, page, again));
		expect_all_free(test, zone);
	}
}

static struct kunit_case llfree_allocator_cases[] = {
	KUNIT_CASE(every_order_is_allocated_and_freed),
	KUNIT_CASE(all_pages_are_allocated_once),
	KUNIT_CASE(blocks_are_freed_in_parts_of_every_order),
	KUNIT_CASE(parts_are_freed_as_blocks_of_every_order),
	KUNIT_CASE(a_certain_page_is_allocated_once),
	KUNIT_CASE(evicted_areas_come_last),
	KUNIT_CASE(nothing_is_allocated_of_what_the_host_holds),
	KUNIT_CASE(a_tree_remembers_what_it_lacks_until_a_free),
	KUNIT_CASE(a_look_is_not_misled_by_what_is_freed_elsewhere),
	KUNIT_CASE(what_is_out_of_bounds_is_not_freed),
	KUNIT_CASE(what_is_out_of_bounds_is_not_free),
	KUNIT_CASE(what_is_free_is_not_freed_again),
	{}
};

static struct kunit_suite llfree_allocator_suite = {
	.name = "llfree_allocator",
	.test_cases = llfree_allocator_cases,
};

kunit_test_suite(llfree_allocator_suite);
