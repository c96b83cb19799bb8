// SPDX-License-Identifier: GPL-2.0-only
/*
 * Waiting for the host, before somebody is killed for want of memory.
 *
 * It takes free memory to discard it and gives it back at once: an allocation
 * that fails meanwhile has not failed for want of memory. What it keeps it may
 * give back when it is asked to.
 */
#include <linux/delay.h>
#include <linux/jiffies.h>
#include <linux/ktime.h>
#include <linux/mmzone.h>
#include <linux/sched/signal.h>

#include "counters.h"
#include "zone.h"
#include <trace/events/llfree.h>

/* How long who needs memory waits for the host to give back what it has in hand. */
#define HAND_JIFFIES	HZ
/* How long for it to give back what it keeps of any zone; it need not. */
#define HELD_JIFFIES	(HZ / 4)
/* How often a free page is tried that has failed, and that the host may have. */
#define TAKE_OFF_TRIES	16

/* Odd while the host has anything in hand. */
static u32 epoch_of(const struct llfree_zone *view)
{
	/* Pairs with the host's exchange before it takes anything. */
	return virt_load_acquire(&view->live->epoch);
}

/* Odd, and not because of a host that has been waited for in vain. */
static bool is_in_hand(struct llfree_kernel_zone *kernel_zone, u32 epoch)
{
	return epoch & 1 && epoch != READ_ONCE(kernel_zone->given_up);
}

/* Until the host has nothing in hand; its epoch then. */
static u32 wait_for_hand(struct llfree_kernel_zone *kernel_zone)
{
	const unsigned long end = jiffies + HAND_JIFFIES;
	const char *how = "given_back";
	const ktime_t start = ktime_get();
	u32 epoch;

	llfree_count_event(LLFREE_WAITS);
	while ((epoch = epoch_of(&kernel_zone->view)) & 1) {
		if (fatal_signal_pending(current)) {
			how = "killed";
			llfree_count_event(LLFREE_WAIT_KILLS);
			break;
		}
		if (time_after(jiffies, end)) {
			how = "timed_out";
			llfree_count_event(LLFREE_WAIT_TIMEOUTS);
			WRITE_ONCE(kernel_zone->given_up, epoch);
			break;
		}
		usleep_range(50, 200);
	}
	trace_llfree_wait(kernel_zone->name, epoch, how,
			  ktime_us_delta(ktime_get(), start));
	return epoch;
}

/**
 * llfree_wait_for_host() - wait until the host has nothing in hand
 * @zone: of LLFree's
 *
 * Not for ever: it may have been killed, or be stopped. Then nobody waits again
 * before it does something. Sleeps.
 *
 * Return: what llfree_host_interfered() wants to know.
 */
unsigned int llfree_wait_for_host(const struct zone *zone)
{
	struct llfree_kernel_zone *kernel_zone = llfree_kernel_zone(zone);
	const u32 epoch = epoch_of(&kernel_zone->view);

	might_sleep();
	return is_in_hand(kernel_zone, epoch) ? wait_for_hand(kernel_zone) : epoch;
}

/**
 * llfree_take_off() - allocate a page that has failed, if it is free
 * @zone: of LLFree's
 * @pfn: the page
 *
 * A page that the host has in hand is free, and cannot be had before it gives it
 * back. Sleeps.
 *
 * Return: false if somebody has the page, or the host keeps it or takes it again
 * and again. Then it is found when it is allocated.
 */
bool llfree_take_off(struct zone *zone, unsigned long pfn)
{
	unsigned int tries;

	for (tries = 0; tries < TAKE_OFF_TRIES; tries++) {
		llfree_wait_for_host(zone);
		if (llfree_alloc_page(zone, pfn))
			return true;
		if (!llfree_has_page(zone, pfn))
			return false;
	}
	return false;
}

static void note_interference(const struct zone *zone, u32 before, u32 after)
{
	llfree_count_event(LLFREE_INTERFERENCES);
	trace_llfree_interfered(llfree_kernel_zone(zone)->name, before, after);
}

/**
 * llfree_host_interfered() - may an allocation have failed because of the host?
 * @zone: of LLFree's
 * @epoch: what llfree_wait_for_host() returned before the allocation
 *
 * A host that had something in hand all the time is not waited for again.
 */
bool llfree_host_interfered(const struct zone *zone, unsigned int epoch)
{
	const u32 now = epoch_of(zone->llfree);

	if (now == epoch)
		return false;
	note_interference(zone, epoch, now);
	return true;
}

/* Asks for what the host keeps of a zone. */
static void ask_for_held(struct zone *zone)
{
	struct llfree_live *live = zone->llfree->live;
	u32 starved;

	llfree_store(&live->want, (u32)DIV_ROUND_UP(high_wmark_pages(zone),
						    LLFREE_AREA_PAGES) + 1);
	/* If somebody else counts at the same time, the host is told all the same. */
	starved = llfree_load(&live->starved);
	llfree_cmpxchg(&live->starved, starved, starved + 1);
}

/* For LLFree's zones, and for those of unit tests in a kernel that has none. */
static u32 held_of(struct zonelist *zonelist, enum zone_type highest_zoneidx)
{
	struct zoneref *z;
	struct zone *zone;
	u32 held = 0;

	for_each_zone_zonelist(zone, z, zonelist, highest_zoneidx)
		if (zone->llfree)
			held += llfree_load(&zone->llfree->live->held);
	return held;
}

/**
 * llfree_ask_hosts() - ask for what the host keeps of any zone
 * @zonelist: the zones
 * @highest_zoneidx: the last of them
 *
 * For who has nothing left to reclaim.
 *
 * Return: the areas it kept before, for llfree_wait_for_held().
 */
unsigned int llfree_ask_hosts(struct zonelist *zonelist,
			      enum zone_type highest_zoneidx)
{
	const u32 held = held_of(zonelist, highest_zoneidx);
	struct zoneref *z;
	struct zone *zone;

	for_each_zone_zonelist(zone, z, zonelist, highest_zoneidx)
		if (zone->llfree && llfree_load(&zone->llfree->live->held))
			ask_for_held(zone);
	return held;
}

/**
 * llfree_wait_for_held() - wait for the host to give back some of what it keeps
 * @zonelist: the zones it was asked for
 * @highest_zoneidx: the last of them
 * @held: what llfree_ask_hosts() has returned
 *
 * For who is about to kill. Gives the host a quarter of a second, for all zones
 * together. Sleeps.
 */
void llfree_wait_for_held(struct zonelist *zonelist,
			  enum zone_type highest_zoneidx, unsigned int held)
{
	const unsigned long end = jiffies + HELD_JIFFIES;

	might_sleep();
	while (held && held_of(zonelist, highest_zoneidx) == held &&
	       time_before(jiffies, end) && !fatal_signal_pending(current))
		usleep_range(1000, 5000);
}

/**
 * llfree_wait_for_hosts() - wait until the host has nothing in hand of any zone
 * @zonelist: the zones
 * @highest_zoneidx: the last of them
 *
 * It may take of the first zone again while the last one is waited for. Sleeps.
 *
 * Return: what llfree_hosts_interfered() wants to know.
 */
unsigned int llfree_wait_for_hosts(struct zonelist *zonelist,
				   enum zone_type highest_zoneidx)
{
	unsigned int epochs = 0;
	struct zoneref *z;
	struct zone *zone;

	for_each_zone_zonelist(zone, z, zonelist, highest_zoneidx)
		if (zone->llfree)
			llfree_wait_for_host(zone);
	/* Only now: what has come and gone during a wait has not interfered. */
	for_each_zone_zonelist(zone, z, zonelist, highest_zoneidx)
		if (zone->llfree)
			epochs += epoch_of(zone->llfree);
	return epochs;
}

/**
 * llfree_hosts_interfered() - may an allocation have failed because of the host?
 * @zonelist: the zones
 * @highest_zoneidx: the last of them
 * @epochs: what llfree_wait_for_hosts() returned before the allocation
 *
 * A host that was waited for in vain has not, as long as it does nothing.
 */
bool llfree_hosts_interfered(struct zonelist *zonelist,
			     enum zone_type highest_zoneidx, unsigned int epochs)
{
	struct zone *zone, *interfered = NULL, *last = NULL;
	unsigned int now = 0, epoch;
	struct zoneref *z;

	for_each_zone_zonelist(zone, z, zonelist, highest_zoneidx) {
		if (!zone->llfree)
			continue;
		epoch = epoch_of(zone->llfree);
		now += epoch;
		last = zone;
		if (is_in_hand(llfree_kernel_zone(zone), epoch))
			interfered = zone;
	}
	if (!interfered && now != epochs)
		interfered = last;
	if (!interfered)
		return false;
	note_interference(interfered, epochs, now);
	return true;
}
