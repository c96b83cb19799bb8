// SPDX-License-Identifier: GPL-2.0-only
/*
 * KUnit tests of the layout that a host relies on: the numbers of docs/abi.md.
 */
#include <kunit/test.h>

#include "../llfree.h"

static void the_header_is_as_documented(struct kunit *test)
{
	KUNIT_EXPECT_MEMEQ(test, &(u64){ LLFREE_MAGIC }, "SLLFREE1", 8);
	KUNIT_EXPECT_EQ(test, 10912U, sizeof(struct llfree_header));
	KUNIT_EXPECT_EQ(test, 8U, offsetof(struct llfree_header, version));
	KUNIT_EXPECT_EQ(test, 12U, offsetof(struct llfree_header, header_bytes));
	KUNIT_EXPECT_EQ(test, 16U, offsetof(struct llfree_header, total_bytes));
	KUNIT_EXPECT_EQ(test, 24U, offsetof(struct llfree_header, zones));
	KUNIT_EXPECT_EQ(test, 28U, offsetof(struct llfree_header, page_shift));
	KUNIT_EXPECT_EQ(test, 32U, offsetof(struct llfree_header, zone));
	KUNIT_EXPECT_EQ(test, 40U, sizeof(struct llfree_description));
	KUNIT_EXPECT_EQ(test, 8U, offsetof(struct llfree_description, areas));
	KUNIT_EXPECT_EQ(test, 16U, offsetof(struct llfree_description, offset));
	KUNIT_EXPECT_EQ(test, 24U, offsetof(struct llfree_description, name));
}

static void each_side_writes_numbers_in_a_line_of_its_own(struct kunit *test)
{
	KUNIT_EXPECT_EQ(test, 128U, sizeof(struct llfree_live));
	KUNIT_EXPECT_EQ(test, 0U, offsetof(struct llfree_live, held));
	KUNIT_EXPECT_EQ(test, 4U, offsetof(struct llfree_live, epoch));
	KUNIT_EXPECT_EQ(test, 8U, offsetof(struct llfree_live, condemned));
	KUNIT_EXPECT_EQ(test, 64U, offsetof(struct llfree_live, starved));
	KUNIT_EXPECT_EQ(test, 68U, offsetof(struct llfree_live, reserve));
	KUNIT_EXPECT_EQ(test, 72U, offsetof(struct llfree_live, want));
	KUNIT_EXPECT_EQ(test, 76U, offsetof(struct llfree_live, doom));
}

/* An address of which only differences are looked at. */
#define STATE	((void *)0x10000)

static void the_parts_of_a_zone_follow_each_other(struct kunit *test)
{
	static const u32 sizes[] = { 1, 2, 7, 8, 9, 31, 32, 33, 512, 10240 };
	struct llfree_description description = { .offset = 192 };
	const void *end, *start = STATE + description.offset;
	struct llfree_zone zone;
	unsigned int i;
	u32 areas;

	for (i = 0; i < ARRAY_SIZE(sizes); i++) {
		areas = sizes[i];
		description.areas = areas;
		llfree_attach(&zone, STATE, &description);
		end = start + llfree_state_bytes(areas);

		KUNIT_EXPECT_EQ(test, areas, zone.areas);
		KUNIT_EXPECT_EQ(test, (areas + 7) / 8, zone.trees);
		KUNIT_EXPECT_PTR_EQ(test, start, (const void *)zone.live);
		KUNIT_EXPECT_PTR_EQ(test, start + 128, (const void *)zone.words);
		KUNIT_EXPECT_PTR_EQ(test, start + 128 + 64UL * areas,
				    (const void *)zone.area);
		KUNIT_EXPECT_PTR_EQ(test, (const void *)zone.area +
				    ALIGN(2UL * areas, 64),
				    (const void *)zone.tree);
		KUNIT_EXPECT_PTR_EQ(test, (const void *)zone.tree +
				    ALIGN(4UL * zone.trees, 64), end);
	}
}

static struct kunit_case llfree_state_cases[] = {
	KUNIT_CASE(the_header_is_as_documented),
	KUNIT_CASE(each_side_writes_numbers_in_a_line_of_its_own),
	KUNIT_CASE(the_parts_of_a_zone_follow_each_other),
	{}
};

static struct kunit_suite llfree_state_suite = {
	.name = "llfree_state",
	.test_cases = llfree_state_cases,
};

kunit_test_suite(llfree_state_suite);
