// SPDX-License-Identifier: GPL-2.0-only
/*
 * File pages come from the shared partition, once for all instances.
 *
 * The shared partition is the node's ZONE_MOVABLE, where file pages go by
 * themselves. But the allocator falls back to other zones before it reclaims,
 * and base memory would fill with cache that is only read once. Here the shared
 * partition's own cache is reclaimed first; then the allocation falls back, and
 * never is anybody killed for cache.
 */
#include <linux/jiffies.h>
#include <linux/memcontrol.h>
#include <linux/mm.h>
#include <linux/pagemap.h>
#include <linux/sched/mm.h>
#include <linux/squeezy_hooks.h>
#include <linux/swap.h>

#include "../internal.h"
#include "../llfree/zone.h"
#include "shared.h"

/* Leads to the node's ZONE_MOVABLE and nowhere else. */
static struct zonelist squeezy_shared_zonelist;

static struct folio *squeezy_get_shared(gfp_t gfp, unsigned int order)
{
	return page_rmappable_folio(alloc_shared_page(gfp | __GFP_COMP, order,
						      &squeezy_shared_zonelist));
}

/* When reclaim found nothing, it is left alone for so long. */
#define SQUEEZY_SHARED_PAUSE	(HZ / 10)

/* Racy without harm: at worst one more walk. */
static unsigned long squeezy_shared_pause_end = INITIAL_JIFFIES;

static bool squeezy_reclaim_shared(gfp_t gfp)
{
	unsigned int noreclaim;
	unsigned long progress;

	if (time_before(jiffies, READ_ONCE(squeezy_shared_pause_end)))
		return false;

	fs_reclaim_acquire(gfp);
	noreclaim = memalloc_noreclaim_save();
	progress = try_to_free_pages(&squeezy_shared_zonelist, 0, gfp, NULL);
	memalloc_noreclaim_restore(noreclaim);
	fs_reclaim_release(gfp);

	if (!progress)
		WRITE_ONCE(squeezy_shared_pause_end,
			   jiffies + SQUEEZY_SHARED_PAUSE);
	return progress;
}

/* Returns NULL if the allocation is to fall back to other zones. */
static struct folio *squeezy_alloc_shared(gfp_t gfp, unsigned int order)
{
	struct zone *zone = squeezy_shared_zone();
	struct folio *folio;

	if (gfp_zone(gfp) != ZONE_MOVABLE || !populated_zone(zone))
		return NULL;
	folio = squeezy_get_shared(gfp, order);
	if (folio || !gfpflags_allow_blocking(gfp) || current->flags & PF_MEMALLOC)
		return folio;

	if (order)
		return NULL;

	/*
	 * Rather than reclaim cache while the host has free pages in hand. What is
	 * read ahead is not worth the wait, which may last for the host's whole sweep.
	 */
	if (zone_is_llfree(zone) && !(gfp & __GFP_NORETRY)) {
		llfree_wait_for_host(zone);
		folio = squeezy_get_shared(gfp, 0);
		if (folio)
			return folio;
	}

	wakeup_kswapd(zone, gfp, 0, ZONE_MOVABLE);
	return squeezy_reclaim_shared(gfp) ? squeezy_get_shared(gfp, 0) : NULL;
}

/**
 * squeezy_file_alloc - allocate a folio for the page cache
 * @gfp: GFP flags
 * @order: order of the folio
 *
 * This is filemap_alloc_folio() on a machine with partitions.
 */
struct folio *squeezy_file_alloc(gfp_t gfp, unsigned int order)
{
	return squeezy_alloc_shared(gfp, order) ?:
	       folio_alloc_noprof(gfp, order);
}
EXPORT_SYMBOL_GPL(squeezy_file_alloc);

/**
 * squeezy_charge_file - charge a folio that is about to enter the page cache
 * @folio: the folio
 * @gfp: GFP flags
 *
 * What lies in the shared partition is everybody's: the partition is its limit,
 * and who reads a library first does not pay for it. What had to fall back to
 * ordinary memory is charged to whom it is read for, who then reclaims it.
 *
 * Return: 0, or an error number.
 */
int squeezy_charge_file(struct folio *folio, gfp_t gfp)
{
	struct mem_cgroup *before;
	int rc;

	if (folio_zone(folio) != squeezy_shared_zone())
		return mem_cgroup_charge(folio, NULL, gfp);

	before = set_active_memcg(root_mem_cgroup);
	rc = mem_cgroup_charge(folio, NULL, gfp);
	set_active_memcg(before);
	return rc;
}

/**
 * squeezy_init_shared - make the way to the shared partition
 */
void squeezy_init_shared(void)
{
	struct zoneref *zoneref = &squeezy_shared_zonelist._zonerefs[0];

	zoneref->zone = squeezy_shared_zone();
	zoneref->zone_idx = ZONE_MOVABLE;
}
