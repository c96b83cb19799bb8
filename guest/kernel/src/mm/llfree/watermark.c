// SPDX-License-Identifier: GPL-2.0-only
/*
 * What the host has, as watermarks and NR_FREE_PAGES see it.
 *
 * The host changes no counter of the guest's. What it keeps it says in
 * live->held, and the guest brings NR_FREE_PAGES up to date before it looks at a
 * watermark: not when it allocates, for a zone that seems empty is not asked for
 * pages, and what the host gave back would never be seen.
 */
#include <linux/mm.h>
#include <linux/vmstat.h>

#include "zone.h"

static void account_held(struct zone *zone,
			 struct llfree_kernel_zone *kernel_zone)
{
	const u32 held = llfree_load(&kernel_zone->view.live->held);
	u32 accounted = READ_ONCE(kernel_zone->accounted);

	/* Who wins applies the difference. */
	if (likely(held == accounted) ||
	    !try_cmpxchg(&kernel_zone->accounted, &accounted, held))
		return;
	mod_zone_page_state(zone, NR_FREE_PAGES,
			    ((long)accounted - held) * LLFREE_AREA_PAGES);
}

/**
 * __llfree_in_hand() - pages that count as free, and that the host is about to
 *	give back
 * @zone: of LLFree's
 *
 * Afterwards NR_FREE_PAGES does without what the host keeps.
 */
unsigned long __llfree_in_hand(struct zone *zone)
{
	struct llfree_kernel_zone *kernel_zone = llfree_kernel_zone(zone);
	const struct llfree_zone *view = &kernel_zone->view;
	u32 areas, accounted;

	account_held(zone, kernel_zone);
	if (likely(!(llfree_load(&view->live->epoch) & 1)))
		return 0;
	areas = llfree_held_areas(view);
	accounted = READ_ONCE(kernel_zone->accounted);
	return areas > accounted ? (areas - accounted) * LLFREE_AREA_PAGES : 0;
}

/**
 * __llfree_has_order() - is there a free block, as far as one can tell quickly?
 * @zone: of LLFree's
 * @order: of the block
 */
bool __llfree_has_order(const struct zone *zone, unsigned int order)
{
	return llfree_has(zone->llfree, order);
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
