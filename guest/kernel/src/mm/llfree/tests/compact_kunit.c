// SPDX-License-Identifier: GPL-2.0-only
/*
 * KUnit tests of what compaction and statistics ask of the allocator.
 */
#include "zone_kunit.h"

/* Frees the first pages of an area. */
static void free_some(struct kunit *test, struct llfree_zone *zone, u32 area,
		      u32 pages)
{
	u32 i;

	for (i = 0; i < pages; i++)
		put(test, zone, area * LLFREE_AREA_PAGES + i, 0);
}

static void pages_go_to_the_fullest_area(struct kunit *test)
{
	struct llfree_zone *zone = new_zone(test);
	u32 i;

	free_some(test, zone, 2, 200);
	free_some(test, zone, 5, 30);
	free_some(test, zone, 9, 20);
	for (i = 0; i < 50; i++)
		KUNIT_EXPECT_EQ(test, i < 20 ? 9 : 5,
				llfree_get_beside(zone, 2, 0) / LLFREE_AREA_PAGES);
	KUNIT_EXPECT_EQ(test, (long)-ENOMEM, llfree_get_beside(zone, 2, 0));
}

static void pages_do_not_go_to_an_emptier_area(struct kunit *test)
{
	struct llfree_zone *zone = new_zone(test);

	free_some(test, zone, 3, 20);
	free_some(test, zone, 4, 30);
	free_some(test, zone, 5, LLFREE_AREA_PAGES);
	KUNIT_EXPECT_EQ(test, (long)-ENOMEM, llfree_get_beside(zone, 3, 0));
	KUNIT_EXPECT_EQ(test, 3L, llfree_get_beside(zone, 4, 0) / LLFREE_AREA_PAGES);
	KUNIT_EXPECT_EQ(test, (long)-ENOMEM, llfree_get_beside(zone, 5, 0));
}

static void pages_go_where_there_is_a_run_for_them(struct kunit *test)
{
	struct llfree_zone *zone = new_zone(test);
	u32 i;

	/* Fuller, but in single pages. */
	for (i = 0; i < 64; i += 2)
		put(test, zone, LLFREE_AREA_PAGES + i, 0);
	free_some(test, zone, 7, 64);
	free_some(test, zone, 8, 100);
	KUNIT_EXPECT_EQ(test, 7L * LLFREE_AREA_PAGES, llfree_get_beside(zone, 8, 4));
}

static void an_area_is_emptied_if_its_pages_fit_into_fuller_ones(struct kunit *test)
{
	struct llfree_zone *zone = new_zone(test);
	u32 least;

	free_some(test, zone, 0, 150);
	free_some(test, zone, 1, 150);
	free_some(test, zone, 2, LLFREE_AREA_PAGES);
	KUNIT_EXPECT_GT(test, llfree_emptiable(zone), LLFREE_AREA_PAGES);

	free_some(test, zone, 3, 300);
	least = llfree_emptiable(zone);
	KUNIT_EXPECT_TRUE(test, llfree_is_emptiable(zone, 3, least));
	KUNIT_EXPECT_FALSE(test, llfree_is_emptiable(zone, 0, least));
	KUNIT_EXPECT_FALSE(test, llfree_is_emptiable(zone, 2, least));
	KUNIT_EXPECT_FALSE(test, llfree_is_emptiable(zone, 4, least));
	KUNIT_EXPECT_FALSE(test, llfree_is_emptiable(zone, AREAS, 0));
}

/* As compaction does it: the used pages of all emptiable areas, one at a time. */
static void emptying_ends_with_whole_areas(struct kunit *test)
{
	struct llfree_zone *zone = new_zone(test);
	u32 area, page, whole = 0;

	/* Every other page is free: half of the areas can be whole, but for one. */
	for (page = 0; page < PAGES; page += 2)
		put(test, zone, page, 0);
	for (area = 0; area < AREAS; area++) {
		for (page = area * LLFREE_AREA_PAGES;
		     page < (area + 1) * LLFREE_AREA_PAGES; page++) {
			if (!llfree_is_emptiable(zone, area, llfree_emptiable(zone)) ||
			    llfree_is_free(zone, page) ||
			    llfree_get_beside(zone, area, 0) < 0)
				continue;
			put(test, zone, page, 0);
		}
		whole += zone->area[area] == LLFREE_AREA_PAGES;
	}
	KUNIT_EXPECT_EQ(test, PAGES / 2, llfree_free_pages(zone));
	KUNIT_EXPECT_GE(test, whole, AREAS / 2 - 1);
}

static void free_blocks_are_counted_by_order(struct kunit *test)
{
	struct llfree_zone *zone = new_free_zone(test);
	u64 blocks[LLFREE_MAX_ORDER + 1], pages = 0;
	unsigned int order;

	llfree_count_blocks(zone, blocks);
	KUNIT_EXPECT_EQ(test, AREAS / 2, blocks[LLFREE_MAX_ORDER]);
	KUNIT_EXPECT_EQ(test, AREAS % 2, blocks[LLFREE_AREA_ORDER]);

	/* Splits the first pair: a block of each order is left of the first area. */
	KUNIT_ASSERT_TRUE(test, llfree_get_page(zone, 0));
	llfree_count_blocks(zone, blocks);
	KUNIT_EXPECT_EQ(test, AREAS / 2 - 1, blocks[LLFREE_MAX_ORDER]);
	KUNIT_EXPECT_EQ(test, AREAS % 2 + 1, blocks[LLFREE_AREA_ORDER]);
	for (order = 0; order <= LLFREE_MAX_ORDER; order++) {
		if (order < LLFREE_AREA_ORDER)
			KUNIT_EXPECT_EQ(test, 1ULL, blocks[order]);
		pages += blocks[order] << order;
	}
	KUNIT_EXPECT_EQ(test, PAGES - 1, pages);
}

static struct kunit_case llfree_compact_cases[] = {
	KUNIT_CASE(pages_go_to_the_fullest_area),
	KUNIT_CASE(pages_do_not_go_to_an_emptier_area),
	KUNIT_CASE(pages_go_where_there_is_a_run_for_them),
	KUNIT_CASE(an_area_is_emptied_if_its_pages_fit_into_fuller_ones),
	KUNIT_CASE(emptying_ends_with_whole_areas),
	KUNIT_CASE(free_blocks_are_counted_by_order),
	{}
};

static struct kunit_suite llfree_compact_suite = {
	.name = "llfree_compact",
	.test_cases = llfree_compact_cases,
};

kunit_test_suite(llfree_compact_suite);
