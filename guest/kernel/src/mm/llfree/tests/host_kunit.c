// SPDX-License-Identifier: GPL-2.0-only
/*
 * KUnit tests of what the kernel makes of a host's work: the test is the host.
 */
#include <linux/jiffies.h>
#include <linux/mm.h>
#include <linux/percpu.h>
#include <linux/vmstat.h>
#include <linux/workqueue.h>

#include "../zone.h"
#include "zone_kunit.h"

/* A zone of the kernel that nobody else knows of. */
struct fake {
	struct zone zone;
	struct llfree_kernel_zone kernel_zone;
	struct delayed_work giving_back;
};

static void free_statistics(void *statistics)
{
	free_percpu((struct per_cpu_zonestat __percpu *)statistics);
}

/* All its pages are free. */
static struct fake *new_fake(struct kunit *test)
{
	const struct llfree_zone *free = new_free_zone(test);
	struct fake *fake = kunit_kzalloc(test, sizeof(*fake), GFP_KERNEL);

	KUNIT_ASSERT_NOT_NULL(test, fake);
	fake->zone.per_cpu_zonestats = alloc_percpu(struct per_cpu_zonestat);
	KUNIT_ASSERT_NOT_NULL(test, fake->zone.per_cpu_zonestats);
	KUNIT_ASSERT_EQ(test, 0,
			kunit_add_action_or_reset(test, free_statistics,
						  (void __force *)fake->zone.per_cpu_zonestats));
	fake->kernel_zone.view = *free;
	strscpy(fake->kernel_zone.name, "fake");
	fake->zone.llfree = &fake->kernel_zone.view;
	return fake;
}

static struct llfree_live *live(struct fake *fake)
{
	return fake->kernel_zone.view.live;
}

static long counted(struct fake *fake)
{
	return atomic_long_read(&fake->zone.vm_stat[NR_FREE_PAGES]);
}

/* Counts an area out of its tree. */
static void take(struct fake *fake, u32 area)
{
	struct llfree_zone *view = &fake->kernel_zone.view;

	view->tree[area / LLFREE_TREE_AREAS] +=
		BIT(LLFREE_TREE_HELD_SHIFT + area % LLFREE_TREE_AREAS) -
		LLFREE_AREA_PAGES;
	view->area[area] = LLFREE_HOST;
}

static void what_the_host_keeps_is_not_free(struct kunit *test)
{
	struct fake *fake = new_fake(test);

	take(fake, 3);
	take(fake, 9);
	live(fake)->held = 2;
	KUNIT_EXPECT_EQ(test, 0UL, __llfree_in_hand(&fake->zone));
	KUNIT_EXPECT_EQ(test, -2L * LLFREE_AREA_PAGES, counted(fake));
	KUNIT_EXPECT_EQ(test, 0UL, __llfree_in_hand(&fake->zone));
	KUNIT_EXPECT_EQ(test, -2L * LLFREE_AREA_PAGES, counted(fake));

	live(fake)->held = 0;
	KUNIT_EXPECT_EQ(test, 0UL, __llfree_in_hand(&fake->zone));
	KUNIT_EXPECT_EQ(test, 0L, counted(fake));
}

static void what_the_host_has_in_hand_is_not_free_either(struct kunit *test)
{
	struct fake *fake = new_fake(test);

	take(fake, 0);
	live(fake)->held = 1;
	take(fake, 1);
	take(fake, 8);
	live(fake)->epoch = 1;
	KUNIT_EXPECT_EQ(test, 2UL * LLFREE_AREA_PAGES,
			__llfree_in_hand(&fake->zone));
	KUNIT_EXPECT_EQ(test, -1L * LLFREE_AREA_PAGES, counted(fake));

	live(fake)->epoch = 2;
	live(fake)->held = 0;
	KUNIT_EXPECT_EQ(test, 0UL, __llfree_in_hand(&fake->zone));
	KUNIT_EXPECT_EQ(test, 0L, counted(fake));
}

static void give_back(struct work_struct *work)
{
	struct fake *fake = container_of(to_delayed_work(work), struct fake,
					 giving_back);

	llfree_store(&live(fake)->epoch, 2U);
}

static void a_wait_ends_when_the_host_gives_back(struct kunit *test)
{
	struct fake *fake = new_fake(test);
	unsigned int epoch;

	KUNIT_EXPECT_EQ(test, 0U, llfree_wait_for_host(&fake->zone));
	live(fake)->epoch = 1;
	INIT_DELAYED_WORK(&fake->giving_back, give_back);
	schedule_delayed_work(&fake->giving_back, HZ / 20);
	epoch = llfree_wait_for_host(&fake->zone);
	flush_delayed_work(&fake->giving_back);
	KUNIT_EXPECT_EQ(test, 2U, epoch);
	KUNIT_EXPECT_FALSE(test, llfree_host_interfered(&fake->zone, epoch));
	live(fake)->epoch = 3;
	KUNIT_EXPECT_TRUE(test, llfree_host_interfered(&fake->zone, epoch));
}

static void a_dead_host_is_waited_for_once(struct kunit *test)
{
	struct fake *fake = new_fake(test);
	unsigned long start = jiffies;

	live(fake)->epoch = 5;
	KUNIT_EXPECT_EQ(test, 5U, llfree_wait_for_host(&fake->zone));
	KUNIT_EXPECT_TRUE(test, time_after_eq(jiffies, start + HZ / 2));
	KUNIT_EXPECT_FALSE(test, llfree_host_interfered(&fake->zone, 5));

	start = jiffies;
	KUNIT_EXPECT_EQ(test, 5U, llfree_wait_for_host(&fake->zone));
	KUNIT_EXPECT_TRUE(test, time_before(jiffies, start + HZ / 2));
}

static struct kunit_case llfree_host_cases[] = {
	KUNIT_CASE(what_the_host_keeps_is_not_free),
	KUNIT_CASE(what_the_host_has_in_hand_is_not_free_either),
	KUNIT_CASE(a_wait_ends_when_the_host_gives_back),
	KUNIT_CASE(a_dead_host_is_waited_for_once),
	{}
};

static struct kunit_suite llfree_host_suite = {
	.name = "llfree_host",
	.test_cases = llfree_host_cases,
};

kunit_test_suite(llfree_host_suite);
