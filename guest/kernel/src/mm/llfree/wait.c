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
/* How long for it to give back what it keeps; it need not. */
#define HELD_JIFFIES	(HZ / 4)

/* Odd while the host has anything in hand. */
static u32 epoch_of(const struct llfree_zone *view)
{
	/* Pairs with the host's exchange before it takes anything. */
	return virt_load_acquire(&view->live->epoch);
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
	/* What was given up is odd, but for the 0 of the beginning. */
	if (!(epoch & 1) || epoch == READ_ONCE(kernel_zone->given_up))
		return epoch;
	return wait_for_hand(kernel_zone);
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

/* Asks for what the host keeps of a zone, and gives it time to give some back. */
static void ask_for_held(struct zone *zone)
{
	struct llfree_live *live = zone->llfree->live;
	const unsigned long end = jiffies + HELD_JIFFIES;
	const u32 held = llfree_load(&live->held);
	u32 starved;

	if (!held)
		return;
	llfree_store(&live->want, (u32)DIV_ROUND_UP(high_wmark_pages(zone),
						    LLFREE_AREA_PAGES) + 1);
	/* If somebody else counts at the same time, the host is told all the same. */
	starved = llfree_load(&live->starved);
	llfree_cmpxchg(&live->starved, starved, starved + 1);
	while (llfree_load(&live->held) == held && time_before(jiffies, end) &&
	       !fatal_signal_pending(current))
		usleep_range(1000, 5000);
}

/**
 * llfree_wait_for_hosts() - wait for what the host has of any zone
 * @zonelist: the zones
 * @highest_zoneidx: the last of them
 *
 * Return: what llfree_hosts_interfered() wants to know.
 */
unsigned int llfree_wait_for_hosts(struct zonelist *zonelist,
				   enum zone_type highest_zoneidx)
{
	unsigned int epochs = 0;
	struct zoneref *z;
	struct zone *zone;

	for_each_zone_zonelist(zone, z, zonelist, highest_zoneidx) {
		if (!zone_is_llfree(zone))
			continue;
		ask_for_held(zone);
		epochs += llfree_wait_for_host(zone);
	}
	return epochs;
}

/**
 * llfree_hosts_interfered() - may an allocation have failed because of the host?
 * @zonelist: the zones
 * @highest_zoneidx: the last of them
 * @epochs: what llfree_wait_for_hosts() returned before the allocation
 */
bool llfree_hosts_interfered(struct zonelist *zonelist,
			     enum zone_type highest_zoneidx, unsigned int epochs)
{
	unsigned int now = 0;
	struct zoneref *z;
	struct zone *zone, *last = NULL;

	for_each_zone_zonelist(zone, z, zonelist, highest_zoneidx) {
		if (!zone_is_llfree(zone))
			continue;
		now += epoch_of(zone->llfree);
		last = zone;
	}
	if (!last || now == epochs)
		return false;
	note_interference(last, epochs, now);
	return true;
}
