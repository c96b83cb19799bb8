// SPDX-License-Identifier: GPL-2.0-only
/*
 * KUnit tests of what the kernel makes of a host's work: the test is the host.
 */
#include <linux/delay.h>
#include <linux/jiffies.h>
#include <linux/mm.h>
#include <linux/percpu.h>
#include <linux/vmstat.h>
#include <linux/workqueue.h>

#include "../counters.h"
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

static void take(struct fake *fake, u32 area)
{
	hold(&fake->kernel_zone.view, area);
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

static void single_pages_that_the_host_discards_are_in_hand(struct kunit *test)
{
	struct fake *fake = new_fake(test);
	struct llfree_zone *view = &fake->kernel_zone.view;

	KUNIT_ASSERT_TRUE(test, llfree_get_page(view, 7));
	view->area[0] |= LLFREE_ISOLATED;
	live(fake)->epoch = 1;
	KUNIT_EXPECT_EQ(test, LLFREE_AREA_PAGES - 1UL,
			__llfree_in_hand(&fake->zone));
	view->area[0] &= ~LLFREE_ISOLATED;
	live(fake)->epoch = 2;
	KUNIT_EXPECT_EQ(test, 0UL, __llfree_in_hand(&fake->zone));
}

static void what_is_in_hand_is_counted_once_in_a_jiffy(struct kunit *test)
{
	const unsigned long area = LLFREE_AREA_PAGES;
	struct fake *fake = new_fake(test);
	unsigned long start, first, again, tries = 0;

	do {
		fake->kernel_zone.hand_at = 0;
		take(fake, tries);
		live(fake)->epoch = 1;
		start = jiffies;
		first = __llfree_in_hand(&fake->zone);
		take(fake, tries + 1);
		again = __llfree_in_hand(&fake->zone);
		tries += 2;
	} while (time_after(jiffies, start) && tries < AREAS - 1);
	KUNIT_EXPECT_EQ(test, (tries - 1) * area, first);
	if (!time_after(jiffies, start))
		KUNIT_EXPECT_EQ(test, first, again);

	/* Another epoch, another count. */
	live(fake)->epoch = 3;
	KUNIT_EXPECT_EQ(test, tries * area, __llfree_in_hand(&fake->zone));
	take(fake, tries);
	while (!time_after(jiffies, READ_ONCE(fake->kernel_zone.hand_at)))
		cpu_relax();
	KUNIT_EXPECT_EQ(test, (tries + 1) * area, __llfree_in_hand(&fake->zone));
}

static void give_back(struct work_struct *work)
{
	struct fake *fake = container_of(to_delayed_work(work), struct fake,
					 giving_back);

	llfree_store(&live(fake)->epoch, 2U);
}

static long event_count(enum llfree_counter counter)
{
	return atomic_long_read(&llfree_counters[counter]);
}

static void a_wait_ends_when_the_host_gives_back(struct kunit *test)
{
	const long waits = event_count(LLFREE_WAITS);
	const long interferences = event_count(LLFREE_INTERFERENCES);
	struct fake *fake = new_fake(test);
	unsigned int epoch;

	KUNIT_EXPECT_EQ(test, 0U, llfree_wait_for_host(&fake->zone));
	KUNIT_EXPECT_EQ(test, waits, event_count(LLFREE_WAITS));
	live(fake)->epoch = 1;
	INIT_DELAYED_WORK(&fake->giving_back, give_back);
	schedule_delayed_work(&fake->giving_back, HZ / 20);
	epoch = llfree_wait_for_host(&fake->zone);
	flush_delayed_work(&fake->giving_back);
	KUNIT_EXPECT_EQ(test, 2U, epoch);
	KUNIT_EXPECT_EQ(test, waits + 1, event_count(LLFREE_WAITS));
	KUNIT_EXPECT_FALSE(test, llfree_host_interfered(&fake->zone, epoch));
	KUNIT_EXPECT_EQ(test, interferences, event_count(LLFREE_INTERFERENCES));
	live(fake)->epoch = 3;
	KUNIT_EXPECT_TRUE(test, llfree_host_interfered(&fake->zone, epoch));
	KUNIT_EXPECT_EQ(test, interferences + 1, event_count(LLFREE_INTERFERENCES));
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

/* The lists of zones that allocations try, one after the other. */
static struct zonelist *list_of(struct kunit *test, struct fake *first,
				struct fake *second)
{
	struct zonelist *list = kunit_kzalloc(test, sizeof(*list), GFP_KERNEL);

	KUNIT_ASSERT_NOT_NULL(test, list);
	list->_zonerefs[0].zone = &first->zone;
	list->_zonerefs[0].zone_idx = ZONE_NORMAL;
	list->_zonerefs[1].zone = &second->zone;
	list->_zonerefs[1].zone_idx = ZONE_DMA32;
	return list;
}

static void all_zones_are_asked_at_once(struct kunit *test)
{
	struct fake *first = new_fake(test), *second = new_fake(test);
	struct zonelist *list = list_of(test, first, second);
	unsigned long start = jiffies;
	unsigned int held;

	/* It keeps nothing. */
	llfree_wait_for_held(list, ZONE_NORMAL,
			     llfree_ask_hosts(list, ZONE_NORMAL));
	KUNIT_EXPECT_TRUE(test, time_before(jiffies, start + HZ / 8));
	KUNIT_EXPECT_EQ(test, 0U, live(first)->starved + live(second)->starved);

	live(first)->held = 3;
	live(second)->held = 2;
	start = jiffies;
	held = llfree_ask_hosts(list, ZONE_NORMAL);
	/* Who cannot wait has asked all the same. */
	KUNIT_EXPECT_TRUE(test, time_before(jiffies, start + HZ / 8));
	KUNIT_EXPECT_EQ(test, 5U, held);
	KUNIT_EXPECT_EQ(test, 1U, live(first)->starved);
	llfree_wait_for_held(list, ZONE_NORMAL, held);
	KUNIT_EXPECT_TRUE(test, time_after_eq(jiffies, start + HZ / 4));
	KUNIT_EXPECT_TRUE(test, time_before(jiffies, start + HZ / 4 + HZ / 8));
	KUNIT_EXPECT_EQ(test, 1U, live(first)->starved);
	KUNIT_EXPECT_EQ(test, 1U, live(second)->starved);
	KUNIT_EXPECT_GE(test, live(first)->want, 1U);

	/* What was given back since then is not waited for. */
	start = jiffies;
	held = llfree_ask_hosts(list, ZONE_DMA32);
	live(second)->held = 1;
	llfree_wait_for_held(list, ZONE_DMA32, held);
	KUNIT_EXPECT_TRUE(test, time_before(jiffies, start + HZ / 8));
	/* Only that one can be had. */
	KUNIT_EXPECT_EQ(test, 1U, live(first)->starved);
	KUNIT_EXPECT_EQ(test, 2U, live(second)->starved);
}

static void what_comes_and_goes_during_a_wait_is_no_interference(struct kunit *test)
{
	struct fake *first = new_fake(test), *second = new_fake(test);
	struct zonelist *list = list_of(test, first, second);
	unsigned int epochs;

	/* A pass over the first zone while the second one is waited for. */
	live(second)->epoch = 1;
	INIT_DELAYED_WORK(&second->giving_back, give_back);
	schedule_delayed_work(&second->giving_back, HZ / 20);
	INIT_DELAYED_WORK(&first->giving_back, give_back);
	schedule_delayed_work(&first->giving_back, HZ / 40);
	epochs = llfree_wait_for_hosts(list, ZONE_NORMAL);
	flush_delayed_work(&first->giving_back);
	flush_delayed_work(&second->giving_back);
	KUNIT_EXPECT_EQ(test, 4U, epochs);
	KUNIT_EXPECT_FALSE(test, llfree_hosts_interfered(list, ZONE_NORMAL, epochs));

	/* One that has begun before the allocation, and is still at it. */
	live(first)->epoch = 3;
	KUNIT_EXPECT_TRUE(test, llfree_hosts_interfered(list, ZONE_NORMAL, 5));
	live(first)->epoch = 4;
	KUNIT_EXPECT_TRUE(test, llfree_hosts_interfered(list, ZONE_NORMAL, 5));
	KUNIT_EXPECT_FALSE(test, llfree_hosts_interfered(list, ZONE_NORMAL, 6));

	/* One that was waited for in vain has not, unless it goes on. */
	live(first)->epoch = 7;
	epochs = llfree_wait_for_hosts(list, ZONE_NORMAL);
	KUNIT_EXPECT_FALSE(test, llfree_hosts_interfered(list, ZONE_NORMAL, epochs));
	live(first)->epoch = 8;
	KUNIT_EXPECT_TRUE(test, llfree_hosts_interfered(list, ZONE_NORMAL, epochs));
}

/* Gives the first area back, with nothing behind it. */
static void give_area_back(struct work_struct *work)
{
	struct fake *fake = container_of(to_delayed_work(work), struct fake,
					 giving_back);
	struct llfree_zone *view = &fake->kernel_zone.view;

	view->area[0] = LLFREE_AREA_PAGES | LLFREE_EVICTED;
	view->tree[0] += LLFREE_AREA_PAGES - BIT(LLFREE_TREE_HELD_SHIFT);
	llfree_store(&live(fake)->epoch, 2U);
}

static void a_page_that_fails_is_had_when_the_host_gives_it_back(struct kunit *test)
{
	struct fake *fake = new_fake(test);

	take(fake, 0);
	live(fake)->epoch = 1;
	KUNIT_EXPECT_TRUE(test, llfree_has_page(&fake->zone, 5));
	INIT_DELAYED_WORK(&fake->giving_back, give_area_back);
	schedule_delayed_work(&fake->giving_back, HZ / 20);
	KUNIT_EXPECT_TRUE(test, llfree_take_off(&fake->zone, 5));
	flush_delayed_work(&fake->giving_back);
	KUNIT_EXPECT_FALSE(test, llfree_has_page(&fake->zone, 5));
	KUNIT_EXPECT_EQ(test, -1L, counted(fake));

	/* Somebody has it: nobody is waited for. */
	KUNIT_EXPECT_FALSE(test, llfree_take_off(&fake->zone, 5));
	/* The host keeps it. */
	take(fake, 1);
	live(fake)->held = 1;
	KUNIT_EXPECT_FALSE(test, llfree_take_off(&fake->zone, LLFREE_AREA_PAGES));
}

static void a_page_that_has_failed_is_handed_to_nobody(struct kunit *test)
{
	struct page *block = alloc_pages(GFP_KERNEL, 2);
	struct fake *fake = new_fake(test);
	struct llfree_zone *view = &fake->kernel_zone.view;
	unsigned int i;

	KUNIT_ASSERT_NOT_NULL(test, block);
	/* The zone's first pages, as far as it knows. */
	view->start_page = page_to_pfn(block);
	for (i = 0; i < 4; i++)
		KUNIT_EXPECT_TRUE(test, llfree_get_page(view, i));
	KUNIT_EXPECT_FALSE(test, llfree_drop_failed(&fake->zone, block, 2));

	SetPageHWPoison(block + 1);
	num_poisoned_pages_inc(page_to_pfn(block + 1));
	KUNIT_EXPECT_TRUE(test, llfree_drop_failed(&fake->zone, block, 2));
	for (i = 0; i < 4; i++)
		KUNIT_EXPECT_EQ(test, i != 1, llfree_is_free(view, i));
	KUNIT_EXPECT_EQ(test, 3L, counted(fake));
	KUNIT_EXPECT_EQ(test, 1, page_count(block + 1));

	page_ref_dec(block + 1);
	set_page_private(block + 1, 0);
	ClearPageHWPoison(block + 1);
	num_poisoned_pages_sub(page_to_pfn(block + 1), 1);
	__free_pages(block, 2);
}

static void free_blocks_are_counted_again_after_a_while(struct kunit *test)
{
	unsigned long blocks[NR_PAGE_ORDERS];
	struct fake *fake = new_fake(test);

	__llfree_free_blocks(&fake->zone, blocks);
	KUNIT_EXPECT_EQ(test, AREAS / 2, blocks[LLFREE_MAX_ORDER]);
	KUNIT_ASSERT_TRUE(test, llfree_get_page(&fake->kernel_zone.view, 0));
	while (!time_after(jiffies, READ_ONCE(fake->kernel_zone.blocks_until)))
		msleep(20);
	__llfree_free_blocks(&fake->zone, blocks);
	KUNIT_EXPECT_EQ(test, AREAS / 2 - 1, blocks[LLFREE_MAX_ORDER]);
	KUNIT_EXPECT_EQ(test, 1UL, blocks[0]);
}

static struct kunit_case llfree_host_cases[] = {
	KUNIT_CASE(what_the_host_keeps_is_not_free),
	KUNIT_CASE(what_the_host_has_in_hand_is_not_free_either),
	KUNIT_CASE(a_wait_ends_when_the_host_gives_back),
	KUNIT_CASE(a_dead_host_is_waited_for_once),
	KUNIT_CASE(single_pages_that_the_host_discards_are_in_hand),
	KUNIT_CASE(what_is_in_hand_is_counted_once_in_a_jiffy),
	KUNIT_CASE(all_zones_are_asked_at_once),
	KUNIT_CASE(what_comes_and_goes_during_a_wait_is_no_interference),
	KUNIT_CASE(a_page_that_fails_is_had_when_the_host_gives_it_back),
	KUNIT_CASE(a_page_that_has_failed_is_handed_to_nobody),
	KUNIT_CASE(free_blocks_are_counted_again_after_a_while),
	{}
};

static struct kunit_suite llfree_host_suite = {
	.name = "llfree_host",
	.test_cases = llfree_host_cases,
};

kunit_test_suite(llfree_host_suite);
