// SPDX-License-Identifier: GPL-2.0-only
/*
 * What the host has, as watermarks and NR_FREE_PAGES see it.
 *
 * The host changes no counter of the guest's. What it keeps it says in
 * live->held, and the guest brings NR_FREE_PAGES up to date before it looks at a
 * watermark: not when it allocates, for a zone that seems empty is not asked for
 * pages, and what the host gave back would never be seen.
 */
#include <linux/jiffies.h>
#include <linux/mm.h>
#include <linux/vmstat.h>

#include "zone.h"

static noinline void account_held(struct zone *zone,
				  struct llfree_kernel_zone *kernel_zone, u32 held)
{
	u32 accounted = READ_ONCE(kernel_zone->accounted);

	/* Who wins applies the difference. */
	if (held == accounted ||
	    !try_cmpxchg(&kernel_zone->accounted, &accounted, held))
		return;
	mod_zone_page_state(zone, NR_FREE_PAGES,
			    ((long)accounted - held) * LLFREE_AREA_PAGES);
}

/*
 * What the host has at a moment, in hand or kept. It is asked for each allocation
 * while the host has anything in hand, and looks at all trees and areas: so once
 * for each of its epochs and each jiffy.
 */
static unsigned long pages_of_host(struct llfree_kernel_zone *kernel_zone, u32 epoch)
{
	const struct llfree_zone *view = &kernel_zone->view;
	unsigned long pages;

	/* Pairs with the release below: @hand is at least as new as this. */
	if (!time_after(jiffies, smp_load_acquire(&kernel_zone->hand_at)) &&
	    READ_ONCE(kernel_zone->hand_epoch) == epoch)
		return READ_ONCE(kernel_zone->hand);
	pages = (unsigned long)llfree_held_areas(view) * LLFREE_AREA_PAGES +
		llfree_isolated_pages(view);
	WRITE_ONCE(kernel_zone->hand, pages);
	WRITE_ONCE(kernel_zone->hand_epoch, epoch);
	/* Pairs with the acquire above. */
	smp_store_release(&kernel_zone->hand_at, jiffies);
	return pages;
}

static noinline unsigned long in_hand(struct llfree_kernel_zone *kernel_zone,
				      u32 epoch)
{
	const unsigned long pages = pages_of_host(kernel_zone, epoch);
	const unsigned long accounted =
		(unsigned long)READ_ONCE(kernel_zone->accounted) * LLFREE_AREA_PAGES;

	return pages > accounted ? pages - accounted : 0;
}

/**
 * __llfree_in_hand() - pages that count as free, and that the host is about to
 *	give back
 * @zone: of LLFree's
 *
 * Those of areas that it has taken, and those that it discards one by one.
 * Afterwards NR_FREE_PAGES does without what the host keeps. Every allocation
 * asks: what is rare is in functions of its own, so that nothing is saved here.
 *
 * Return: as it was in this jiffy.
 */
unsigned long __llfree_in_hand(struct zone *zone)
{
	struct llfree_kernel_zone *kernel_zone = llfree_kernel_zone(zone);
	const struct llfree_live *live = kernel_zone->view.live;
	const u32 held = llfree_load(&live->held);
	u32 epoch;

	if (unlikely(held != READ_ONCE(kernel_zone->accounted)))
		account_held(zone, kernel_zone, held);
	epoch = llfree_load(&live->epoch);
	return likely(!(epoch & 1)) ? 0 : in_hand(kernel_zone, epoch);
}

/**
 * llfree_has_order() - is there a free block, as far as one can tell quickly?
 * @zone: of LLFree's
 * @order: of the block
 */
bool llfree_has_order(const struct zone *zone, unsigned int order)
{
	return llfree_has(zone->llfree, order);
}

/**
 * llfree_has_block() - is there a free block? Looks for it
 * @zone: of LLFree's
 * @order: of the block
 */
bool llfree_has_block(const struct zone *zone, unsigned int order)
{
	return llfree_look_for(zone->llfree, order);
}

/**
 * __llfree_set_reserve() - tell the host what has to stay free
 * @zone: of LLFree's
 * @pages: as many
 */
void __llfree_set_reserve(struct zone *zone, unsigned long pages)
{
	llfree_store(&zone->llfree->live->reserve, (u32)min(pages, U32_MAX));
}
