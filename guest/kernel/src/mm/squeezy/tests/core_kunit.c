// SPDX-License-Identifier: GPL-2.0-only
/*
 * KUnit tests of the state machine.
 */
#include <kunit/test.h>

#include "../core.h"

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
		bool held, last;

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
			last = squeezy_leave(p);
			KUNIT_ASSERT_EQ(test, last, !p->users);
			KUNIT_ASSERT_EQ(test, last,
					p->state == SQUEEZY_DRAINING);
			squeezy_change_state(p, SQUEEZY_DRAINING,
					     SQUEEZY_FREE);
			break;
		}
	}
}

static struct kunit_case squeezy_core_cases[] = {
	KUNIT_CASE(only_free_is_assigned_or_unplugged),
	KUNIT_CASE(assigned_is_left_by_draining_only),
	KUNIT_CASE(only_states_that_ask_the_device_end_in_not_plugged),
	KUNIT_CASE(every_state_is_reached_and_can_become_free),
	KUNIT_CASE(random_walks_keep_users_and_state_in_step),
	{}
};

static struct kunit_suite squeezy_core_suite = {
	.name = "squeezy_core",
	.test_cases = squeezy_core_cases,
};

kunit_test_suite(squeezy_core_suite);
