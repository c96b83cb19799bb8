// SPDX-License-Identifier: GPL-2.0-only
/*
 * KUnit tests of the layout.
 */
#include <kunit/test.h>
#include <linux/mmzone.h>
#include <linux/pfn.h>
#include <linux/sizes.h>
#include <linux/limits.h>

#include "../layout.h"

#define ADDR	(4ULL * SZ_1G)
#define BLOCK	((u64)SZ_2M)
#define MEMORY_BLOCK ((u64)SZ_128M)

static int make(u64 size, u64 shared, unsigned int nr, u64 region,
		struct squeezy_layout *layout, const char **why)
{
	const struct squeezy_parameters parameters = {
		.partition_size = size,
		.shared_size = shared,
		.nr = nr,
	};

	return squeezy_make_layout(&parameters, ADDR, region, BLOCK, MEMORY_BLOCK,
				   layout, why);
}

static void layout_puts_shared_partition_first(struct kunit *test)
{
	struct squeezy_layout layout;
	const char *why;

	KUNIT_ASSERT_EQ(test, 0, make(SZ_512M + SZ_256M, SZ_512M, 8,
				      8ULL * SZ_1G, &layout, &why));
	KUNIT_EXPECT_EQ(test, layout.first_pfn, PHYS_PFN(ADDR + SZ_512M));
	KUNIT_EXPECT_EQ(test, layout.slot_pages, PHYS_PFN(SZ_512M + SZ_256M));
	KUNIT_EXPECT_EQ(test, layout.partition_pages, layout.slot_pages);
	KUNIT_EXPECT_EQ(test, layout.nr, 8U);
	KUNIT_EXPECT_EQ(test, layout.run,
			U16_MAX / ((SZ_512M + SZ_256M) / BLOCK));
}

static void layout_slots_are_whole_memory_blocks(struct kunit *test)
{
	struct squeezy_layout layout;
	const char *why;

	KUNIT_ASSERT_EQ(test, 0, make(100 * SZ_1M, 0, 4, SZ_1G, &layout, &why));
	KUNIT_EXPECT_EQ(test, layout.partition_pages, PHYS_PFN(100 * SZ_1M));
	KUNIT_EXPECT_EQ(test, layout.slot_pages, PHYS_PFN(SZ_128M));
	KUNIT_EXPECT_EQ(test, layout.run, 1U);

	KUNIT_ASSERT_EQ(test, 0, make(132 * SZ_1M, 0, 4, SZ_1G, &layout, &why));
	KUNIT_EXPECT_EQ(test, layout.slot_pages, PHYS_PFN(SZ_256M));
}

static void layout_rounds_sizes_up(struct kunit *test)
{
	struct squeezy_layout layout;
	const char *why;

	KUNIT_ASSERT_EQ(test, 0, make(1, 1, 1, SZ_256M, &layout, &why));
	KUNIT_EXPECT_EQ(test, layout.partition_pages, MAX_ORDER_NR_PAGES);
	KUNIT_EXPECT_EQ(test, layout.shared_pages, MAX_ORDER_NR_PAGES);
}

static void layout_takes_128_and_255_partitions(struct kunit *test)
{
	struct squeezy_layout layout;
	const char *why;

	KUNIT_EXPECT_EQ(test, 0, make(SZ_128M, 0, 128, 16ULL * SZ_1G, &layout,
				      &why));
	KUNIT_EXPECT_EQ(test, 0, make(SZ_128M, 0, 255, 32ULL * SZ_1G, &layout,
				      &why));
}

static void layout_rejects_nonsense(struct kunit *test)
{
	static const struct {
		u64 size, shared, region;
		unsigned int nr;
	} cases[] = {
		{ 0, 0, SZ_1G, 1 },			/* no size */
		{ SZ_128M, 0, SZ_1G, 0 },		/* no partitions */
		{ SZ_128M, 0, 64ULL * SZ_1G, 256 },	/* too many */
		{ SZ_128M, 0, SZ_1G, 9 },		/* region too small */
		{ SZ_128M, SZ_1G, SZ_1G, 1 },		/* no room after shared */
		{ U64_MAX, 0, SZ_1G, 1 },		/* overflow */
		{ SZ_128M, U64_MAX, SZ_1G, 1 },		/* overflow */
		{ 1ULL << 46, 0, SZ_1G, 255 },		/* overflow of the sum */
		{ 129ULL * SZ_1G, 0, 256ULL * SZ_1G, 1 }, /* one request */
	};
	struct squeezy_layout layout;
	const char *why;
	size_t i;

	for (i = 0; i < ARRAY_SIZE(cases); i++) {
		KUNIT_EXPECT_EQ_MSG(test, -EINVAL,
				    make(cases[i].size, cases[i].shared,
					 cases[i].nr, cases[i].region, &layout,
					 &why), "case %zu", i);
		KUNIT_EXPECT_NOT_NULL(test, why);
	}
}

static struct kunit_case squeezy_layout_cases[] = {
	KUNIT_CASE(layout_puts_shared_partition_first),
	KUNIT_CASE(layout_slots_are_whole_memory_blocks),
	KUNIT_CASE(layout_rounds_sizes_up),
	KUNIT_CASE(layout_takes_128_and_255_partitions),
	KUNIT_CASE(layout_rejects_nonsense),
	{}
};

static struct kunit_suite squeezy_layout_suite = {
	.name = "squeezy_layout",
	.test_cases = squeezy_layout_cases,
};

kunit_test_suite(squeezy_layout_suite);
