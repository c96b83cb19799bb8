// SPDX-License-Identifier: GPL-2.0-only
/*
 * KUnit tests of how long the OOM killer waits.
 */
#include <kunit/test.h>
#include <linux/jiffies.h>

#include "../oom.h"

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

static void a_vm_that_does_not_run_waits_for_nobody(struct kunit *test)
{
	struct squeezy_closing closing = {};
	unsigned long now = INITIAL_JIFFIES;

	squeezy_count_wait(&closing, now);
	closing.waited = 0;
	for (; closing.waited < SQUEEZY_STUCK_JIFFIES; now++)
		squeezy_count_wait(&closing, now);
	KUNIT_EXPECT_EQ(test, now, INITIAL_JIFFIES + SQUEEZY_STUCK_JIFFIES + 1);
	closing.waited = 0;
	squeezy_count_wait(&closing, now + 100 * SQUEEZY_STUCK_JIFFIES);
	KUNIT_EXPECT_LE(test, closing.waited, HZ / 10UL);
}

static struct kunit_case squeezy_oom_cases[] = {
	KUNIT_CASE(those_who_die_are_waited_for_while_some_end),
	KUNIT_CASE(those_of_whom_none_ends_are_given_up),
	KUNIT_CASE(a_vm_that_does_not_run_waits_for_nobody),
	{}
};

static struct kunit_suite squeezy_oom_suite = {
	.name = "squeezy_oom",
	.test_cases = squeezy_oom_cases,
};

kunit_test_suite(squeezy_oom_suite);
