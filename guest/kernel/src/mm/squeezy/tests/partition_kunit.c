// SPDX-License-Identifier: GPL-2.0-only
/*
 * KUnit tests of the state machine, of the layout, of what is reported and of how
 * long the OOM killer waits.
 */
#include <kunit/test.h>
#include <linux/jiffies.h>
#include <linux/mm.h>
#include <linux/sizes.h>

#include "../partition.h"

#define ADDR	(4ULL * SZ_1G)
#define BLOCK	((u64)SZ_2M)
#define MEMORY_BLOCK ((u64)SZ_128M)

static int make(u64 size, u64 shared, unsigned int nr, u64 region,
		struct squeezy_layout *layout, const char **why)
{
	const struct squeezy_request request = {
		.partition_size = size,
		.shared_size = shared,
		.nr = nr,
	};

	return squeezy_make_layout(&request, ADDR, region, BLOCK, MEMORY_BLOCK,
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

static void only_free_is_assigned_or_unplugged(struct kunit *test)
{
	unsigned int from;

	for (from = 0; from < SQUEEZY_NR_STATES; from++) {
		KUNIT_EXPECT_EQ(test, from == SQUEEZY_FREE,
				squeezy_may_change(from, SQUEEZY_ASSIGNED));
		KUNIT_EXPECT_EQ(test, from == SQUEEZY_FREE,
				squeezy_may_change(from, SQUEEZY_UNPLUGGING));
	}
}

static void assigned_is_left_by_draining_only(struct kunit *test)
{
	unsigned int to;

	for (to = 0; to < SQUEEZY_NR_STATES; to++)
		KUNIT_EXPECT_EQ(test, to == SQUEEZY_DRAINING,
				squeezy_may_change(SQUEEZY_ASSIGNED, to));
}

static void only_states_that_ask_the_device_end_in_not_plugged(struct kunit *test)
{
	unsigned int from;

	for (from = 0; from < SQUEEZY_NR_STATES; from++) {
		KUNIT_EXPECT_EQ(test, from == SQUEEZY_POPULATING ||
				from == SQUEEZY_OWED,
				squeezy_may_change(from, SQUEEZY_ABSENT));
		KUNIT_EXPECT_EQ(test, from == SQUEEZY_PLUGGING ||
				from == SQUEEZY_UNPLUGGING,
				squeezy_may_change(from, SQUEEZY_UNPLUGGED));
	}
	KUNIT_EXPECT_FALSE(test, squeezy_may_change(SQUEEZY_OWED, SQUEEZY_FREE));
	KUNIT_EXPECT_TRUE(test, squeezy_may_change(SQUEEZY_OWED,
						   SQUEEZY_POPULATING));
}

static void every_state_is_reached_and_can_become_free(struct kunit *test)
{
	bool reached[SQUEEZY_NR_STATES] = { [SQUEEZY_ABSENT] = true };
	bool frees[SQUEEZY_NR_STATES] = { [SQUEEZY_FREE] = true };
	unsigned int round, from, to;

	for (round = 0; round < SQUEEZY_NR_STATES; round++) {
		for (from = 0; from < SQUEEZY_NR_STATES; from++) {
			for (to = 0; to < SQUEEZY_NR_STATES; to++) {
				if (!squeezy_may_change(from, to))
					continue;
				reached[to] |= reached[from];
				frees[from] |= frees[to];
			}
		}
	}
	for (from = 0; from < SQUEEZY_NR_STATES; from++) {
		KUNIT_EXPECT_TRUE_MSG(test, reached[from], "%s is not reached",
				      squeezy_state_names[from]);
		KUNIT_EXPECT_TRUE_MSG(test, frees[from], "%s never becomes free",
				      squeezy_state_names[from]);
	}
}

static void random_walks_keep_users_and_state_in_step(struct kunit *test)
{
	struct squeezy_partition *p = kunit_kzalloc(test, sizeof(*p),
						    GFP_KERNEL);
	u32 seed = 1;
	int step;

	KUNIT_ASSERT_NOT_NULL(test, p);
	spin_lock_init(&p->lock);
	p->state = SQUEEZY_FREE;

	for (step = 0; step < 10000; step++) {
		bool held;

		seed = seed * 1664525 + 1013904223;
		switch (seed >> 30) {
		case 0:
			if (squeezy_change_state(p, SQUEEZY_FREE,
						 SQUEEZY_UNPLUGGING))
				KUNIT_ASSERT_EQ(test, p->users, 0U);
			squeezy_change_state(p, SQUEEZY_UNPLUGGING,
					     SQUEEZY_FREE);
			break;
		case 1:
			if (squeezy_change_state(p, SQUEEZY_FREE,
						 SQUEEZY_ASSIGNED))
				p->users = 1;
			break;
		case 2:
			held = squeezy_get(p);
			KUNIT_ASSERT_EQ(test, held,
					p->state == SQUEEZY_ASSIGNED);
			break;
		default:
			if (p->state != SQUEEZY_ASSIGNED)
				break;
			squeezy_put(p);
			KUNIT_ASSERT_EQ(test, !p->users,
					p->state == SQUEEZY_DRAINING);
			squeezy_change_state(p, SQUEEZY_DRAINING,
					     SQUEEZY_FREE);
			break;
		}
	}
}

static struct squeezy_batch *new_batch(struct kunit *test)
{
	struct squeezy_batch *batch = kunit_kzalloc(test, sizeof(*batch),
						    GFP_KERNEL);

	KUNIT_ASSERT_NOT_NULL(test, batch);
	squeezy_batch_init(batch);
	return batch;
}

/* A page frame that nobody looks at: only its address counts here. */
#define FRAME	pfn_to_page(PHYS_PFN(ADDR))

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

/* Asks to wait every tenth of a second; for how many of these it may, 1000 at most. */
static unsigned int patience(struct squeezy_wait *wait, unsigned long *now,
			     unsigned int asks_per_exit)
{
	unsigned int asks;

	for (asks = 0; asks < 1000; asks++) {
		*now += HZ / 10;
		if (!squeezy_may_wait(wait, *now, asks / asks_per_exit))
			break;
	}
	return asks;
}

static void those_who_die_are_waited_for_while_some_end(struct kunit *test)
{
	unsigned long now = INITIAL_JIFFIES;
	struct squeezy_wait wait = { .last = now - 2 * HZ };

	KUNIT_EXPECT_EQ(test, patience(&wait, &now, 90), 1000);
}

static void those_of_whom_none_ends_are_given_up(struct kunit *test)
{
	unsigned long now = INITIAL_JIFFIES;
	struct squeezy_wait wait = { .last = now - 2 * HZ };
	unsigned int asks;

	asks = patience(&wait, &now, 10000);
	KUNIT_EXPECT_GE(test, asks, SQUEEZY_STUCK_JIFFIES / (HZ / 10) - 1);
	KUNIT_EXPECT_LE(test, asks, SQUEEZY_STUCK_JIFFIES / (HZ / 10) + 1);
	/* Memory was to be had meanwhile. */
	now += 2 * HZ;
	KUNIT_EXPECT_EQ(test, patience(&wait, &now, 10000), asks);
}

static struct kunit_case squeezy_cases[] = {
	KUNIT_CASE(layout_puts_shared_partition_first),
	KUNIT_CASE(layout_slots_are_whole_memory_blocks),
	KUNIT_CASE(layout_rounds_sizes_up),
	KUNIT_CASE(layout_takes_128_and_255_partitions),
	KUNIT_CASE(layout_rejects_nonsense),
	KUNIT_CASE(only_free_is_assigned_or_unplugged),
	KUNIT_CASE(assigned_is_left_by_draining_only),
	KUNIT_CASE(only_states_that_ask_the_device_end_in_not_plugged),
	KUNIT_CASE(every_state_is_reached_and_can_become_free),
	KUNIT_CASE(random_walks_keep_users_and_state_in_step),
	KUNIT_CASE(batch_joins_adjacent_blocks),
	KUNIT_CASE(batch_has_no_more_entries_than_a_request),
	KUNIT_CASE(batch_is_bounded),
	KUNIT_CASE(those_who_die_are_waited_for_while_some_end),
	KUNIT_CASE(those_of_whom_none_ends_are_given_up),
	{}
};

static struct kunit_suite squeezy_suite = {
	.name = "squeezy",
	.test_cases = squeezy_cases,
};

kunit_test_suite(squeezy_suite);
