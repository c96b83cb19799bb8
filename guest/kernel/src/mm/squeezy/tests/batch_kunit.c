// SPDX-License-Identifier: GPL-2.0-only
/*
 * KUnit tests of what is reported at once.
 */
#include <kunit/test.h>
#include <linux/mm.h>
#include <linux/sizes.h>

#include "../batch.h"

static struct squeezy_batch *new_batch(struct kunit *test)
{
	struct squeezy_batch *batch = kunit_kzalloc(test, sizeof(*batch),
						    GFP_KERNEL);

	KUNIT_ASSERT_NOT_NULL(test, batch);
	squeezy_batch_init(batch);
	return batch;
}

/* A page frame that nobody looks at: only its address counts here. */
#define FRAME	pfn_to_page(PHYS_PFN(4ULL * SZ_1G))

static void batch_joins_adjacent_blocks(struct kunit *test)
{
	struct squeezy_batch *batch = new_batch(test);

	KUNIT_EXPECT_TRUE(test, squeezy_batch_add(batch, FRAME, 10));
	KUNIT_EXPECT_TRUE(test, squeezy_batch_add(batch, FRAME + 1024, 0));
	KUNIT_EXPECT_TRUE(test, squeezy_batch_add(batch, FRAME + 1025, 9));
	KUNIT_EXPECT_EQ(test, batch->nents, 1U);
	KUNIT_EXPECT_TRUE(test, squeezy_batch_add(batch, FRAME + 2048, 3));
	KUNIT_EXPECT_EQ(test, batch->nents, 2U);
	KUNIT_EXPECT_PTR_EQ(test, sg_page(&batch->sgl[0]), FRAME);
	KUNIT_EXPECT_EQ(test, batch->sgl[0].length, 1537 * PAGE_SIZE);
	KUNIT_EXPECT_PTR_EQ(test, sg_page(&batch->sgl[1]), FRAME + 2048);
	KUNIT_EXPECT_EQ(test, batch->sgl[1].length, 8 * PAGE_SIZE);
	KUNIT_EXPECT_EQ(test, batch->bytes, 1545 * PAGE_SIZE);
}

static void batch_has_no_more_entries_than_a_request(struct kunit *test)
{
	struct squeezy_batch *batch = new_batch(test);
	unsigned int i;

	for (i = 0; i < PAGE_REPORTING_CAPACITY; i++)
		KUNIT_EXPECT_TRUE(test, squeezy_batch_add(batch, FRAME + 2 * i, 0));
	KUNIT_EXPECT_FALSE(test, squeezy_batch_add(batch, FRAME + 2 * i, 0));
	KUNIT_EXPECT_TRUE(test, squeezy_batch_add(batch, FRAME + 2 * i - 1, 0));
	KUNIT_EXPECT_EQ(test, batch->nents, PAGE_REPORTING_CAPACITY);
	KUNIT_EXPECT_EQ(test, batch->bytes,
			(PAGE_REPORTING_CAPACITY + 1) * PAGE_SIZE);
}

static void batch_is_bounded(struct kunit *test)
{
	struct squeezy_batch *batch = new_batch(test);
	unsigned int blocks = 0;

	while (blocks < 1000 &&
	       squeezy_batch_add(batch, FRAME + 1024 * blocks, 10))
		blocks++;
	KUNIT_EXPECT_EQ(test, batch->bytes, SQUEEZY_BATCH_BYTES);
	KUNIT_EXPECT_EQ(test, blocks, SQUEEZY_BATCH_BYTES / SZ_4M);
	KUNIT_EXPECT_FALSE(test, squeezy_batch_add(batch, FRAME + 1024 * blocks, 0));
}

static struct kunit_case squeezy_batch_cases[] = {
	KUNIT_CASE(batch_joins_adjacent_blocks),
	KUNIT_CASE(batch_has_no_more_entries_than_a_request),
	KUNIT_CASE(batch_is_bounded),
	{}
};

static struct kunit_suite squeezy_batch_suite = {
	.name = "squeezy_batch",
	.test_cases = squeezy_batch_cases,
};

kunit_test_suite(squeezy_batch_suite);
