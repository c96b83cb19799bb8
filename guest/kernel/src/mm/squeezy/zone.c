// SPDX-License-Identifier: GPL-2.0-only
/*
 * The pages of a partition, which are kept as those of a zone are: on its free
 * lists, and on the per-CPU lists before these. Or LLFree keeps them, if llfree=
 * is on the command line: then the host may take what is free in any state and
 * gives it back, and I2 in core.h says that nobody in the guest has a page. With
 * llfree=all it keeps those of the shared partition, too.
 *
 * A partition has no watermarks, no fallback and no kswapd. This file, batch.c
 * and failed.c are the only ones that know where its free pages are.
 */
#include <linux/highmem.h>
#include <linux/memory_hotplug.h>
#include <linux/mm.h>
#include <linux/page-isolation.h>
#include <linux/vmstat.h>

#include "../internal.h"
#include "../llfree/setup.h"
#include "../llfree/zone.h"
#include "core.h"
#include "failed.h"
#include "page.h"
#include "shared.h"
#include "zone.h"

/* Whether there is room for what LLFree knows of the shared partition. */
static bool squeezy_has_room_for_shared __ro_after_init;

static u64 squeezy_room_for_zones(unsigned int partitions, unsigned long pages,
				  unsigned long shared_pages)
{
	u64 bytes = partitions * llfree_zone_bytes(pages);

	if (squeezy_has_room_for_shared)
		bytes += llfree_zone_bytes(shared_pages);
	return bytes;
}

/**
 * squeezy_keep_room_for_zones - keep room for what LLFree knows of partitions
 * @partitions: how many may be set up
 * @pages: that each of them may have
 * @shared_pages: those of whole memory blocks that the shared one may have
 *
 * What kernelcore= or movablecore= makes movable is Linux's, and so is the shared
 * partition then. Memory is still memblock's.
 */
void __init squeezy_keep_room_for_zones(unsigned int partitions,
					unsigned long pages,
					unsigned long shared_pages)
{
	squeezy_has_room_for_shared = partitions && shared_pages &&
				      llfree_wants_boot_memory() &&
				      !populated_zone(squeezy_shared_zone());
	llfree_keep_room(squeezy_room_for_zones(partitions, pages, shared_pages));
}

/**
 * squeezy_prepare_zones - have room for the zones of all partitions
 *
 * Return: 0, or -ENOMEM.
 */
int squeezy_prepare_zones(void)
{
	const struct squeezy_layout *layout = &squeezy_layout;

	if (!llfree_wants_partitions())
		return 0;
	return llfree_prepare(layout->nr + squeezy_has_room_for_shared,
			      squeezy_room_for_zones(layout->nr,
						     layout->partition_pages,
						     layout->shared_slot_pages));
}

/**
 * squeezy_init_shared_zone - have LLFree keep the pages of the shared partition
 *
 * If it has room for them, and nobody has added other memory to the zone before.
 * There is room for it, by squeezy_prepare_zones().
 */
void squeezy_init_shared_zone(void)
{
	const struct squeezy_layout *layout = &squeezy_layout;
	struct zone *zone = squeezy_shared_zone();

	if (!squeezy_has_room_for_shared)
		return;
	get_online_mems();
	if (populated_zone(zone))
		pr_info("squeezy: the shared partition is not LLFree's: other memory is movable, too\n");
	else
		llfree_add_zone(zone, layout->first_pfn - layout->shared_slot_pages,
				layout->shared_slot_pages, "shared");
	put_online_mems();
}

/**
 * squeezy_init_zone - make the zone of a partition, without any memory
 * @p: the partition
 *
 * There is room for it, by squeezy_prepare_zones().
 */
void squeezy_init_zone(struct squeezy_partition *p)
{
	char name[16];

	partition_zone_init(&p->zone, 0, p->number + 1);
	p->zonelist._zonerefs[0].zone = &p->zone;
	p->zonelist._zonerefs[0].zone_idx = ZONE_MOVABLE;
	if (!llfree_wants_partitions())
		return;
	snprintf(name, sizeof(name), "partition%u", p->number);
	llfree_add_zone(&p->zone, p->start_pfn, squeezy_layout.partition_pages,
			name);
}

/**
 * __squeezy_online_page - put pages of a new partition on its free lists
 * @page: the first of them
 * @order: how many
 *
 * What lies between the end of a partition and the end of its slot was not
 * plugged: it stays PageOffline.
 *
 * Return: true if the pages are in a partition's slot.
 */
bool __squeezy_online_page(struct page *page, unsigned int order)
{
	const unsigned long start = page_to_pfn(page);
	struct squeezy_partition *p = squeezy_pfn_partition(start);

	if (!p)
		return false;

	/* Sizes are multiples of MAX_ORDER_NR_PAGES: no page straddles one. */
	if (start < p->start_pfn + squeezy_layout.partition_pages)
		free_partition_core(page, order);
	return true;
}

/**
 * squeezy_alloc_folio - allocate what is free in a partition
 * @p: the partition, of which the caller is or holds a user
 * @gfp: GFP flags
 * @order: order of the folio
 *
 * Neither reclaims nor waits.
 */
struct folio *squeezy_alloc_folio(struct squeezy_partition *p, gfp_t gfp,
				  unsigned int order)
{
	struct page *page;
	unsigned int i;

	page = alloc_partition_page(gfp | __GFP_COMP, order, &p->zonelist);
	if (!page)
		return NULL;

	/*
	 * With init_on_free=1 the allocator takes every free page for zero. One
	 * that was not freed since it was plugged is only if the host says so,
	 * which virtio-mem does not promise.
	 */
	if (want_init_on_free() && want_init_on_alloc(gfp))
		for (i = 0; i < 1 << order; i++)
			clear_highpage(page + i);

	return page_rmappable_folio(page);
}

/**
 * squeezy_flush_cpus - put pages from the per-CPU lists on the free lists
 * @p: the partition, plugged
 *
 * Sleeps.
 */
void squeezy_flush_cpus(struct squeezy_partition *p)
{
	drain_all_pages(&p->zone);
}

/**
 * squeezy_managed_pages - pages a partition has in all
 * @p: the partition, plugged
 */
unsigned long squeezy_managed_pages(struct squeezy_partition *p)
{
	return zone_managed_pages(&p->zone);
}

/**
 * squeezy_pages_available - free pages that are not on per-CPU lists
 * @p: the partition
 *
 * Cheap, and about right.
 */
unsigned long squeezy_pages_available(struct squeezy_partition *p)
{
	return zone_page_state_snapshot(&p->zone, NR_FREE_PAGES);
}

/**
 * __squeezy_free_pages - free pages that ordinary allocations cannot get
 */
unsigned long __squeezy_free_pages(void)
{
	struct squeezy_partition *p;
	unsigned long pages = 0;

	squeezy_for_each_partition(p)
		pages += zone_page_state(&p->zone, NR_FREE_PAGES);
	return pages;
}

/* Pages on the zone's free lists, however they are accounted for. */
static unsigned long squeezy_exact_free(struct zone *zone)
{
	unsigned long pages = 0;
	unsigned int order;

	lockdep_assert_held(&zone->lock);
	for (order = 0; order < NR_PAGE_ORDERS; order++)
		pages += zone->free_area[order].nr_free << order;
	return pages;
}

/*
 * Pages of a partition that are on its free lists, or LLFree's. Those on per-CPU
 * lists do not count, and none does while a block is isolated. The host's do:
 * it has taken them because they were nobody's.
 */
static unsigned long squeezy_pages_free(struct squeezy_partition *p)
{
	struct zone *zone = &p->zone;
	unsigned long pages = 0, flags;

	if (zone_is_llfree(zone))
		return llfree_unused_pages(zone->llfree);

	spin_lock_irqsave(&zone->lock, flags);
	if (!has_isolate_pageblock(zone))
		pages = squeezy_exact_free(zone);
	spin_unlock_irqrestore(&zone->lock, flags);
	return pages;
}

/**
 * squeezy_pages_used - pages that somebody has, or a per-CPU list
 * @p: the partition, plugged
 */
unsigned long squeezy_pages_used(struct squeezy_partition *p)
{
	const unsigned long used = squeezy_managed_pages(p) -
				   squeezy_pages_free(p);

	return used ? used - min(used, squeezy_pages_failed(p)) : 0;
}

/**
 * squeezy_is_empty - is every page of a partition free?
 * @p: the partition, plugged
 */
bool squeezy_is_empty(struct squeezy_partition *p)
{
	return !squeezy_pages_used(p);
}

/**
 * squeezy_watch - have each free of a page run the drain
 * @p: the partition, without users
 *
 * And have none end on a per-CPU list. Both before the caller counts again, or the
 * last free could be missed: one that takes zone->lock before the count is
 * counted, one that takes it after the count sees the bit.
 */
void squeezy_watch(struct squeezy_partition *p)
{
	if (!test_bit(ZONE_SQUEEZY_WATCHED, &p->zone.flags))
		zone_watch(&p->zone);
}

/**
 * squeezy_unwatch - undo squeezy_watch()
 * @p: the partition, watched or not
 */
void squeezy_unwatch(struct squeezy_partition *p)
{
	if (test_bit(ZONE_SQUEEZY_WATCHED, &p->zone.flags))
		zone_unwatch(&p->zone);
}

/**
 * squeezy_let_host_discard - tell the host that it may discard a partition
 * @p: the partition, doomed; by cgroup_mutex
 *
 * Without LLFree it cannot be told, and does not.
 */
void squeezy_let_host_discard(struct squeezy_partition *p)
{
	if (zone_is_llfree(&p->zone))
		llfree_doom(p->zone.llfree);
}

/**
 * squeezy_keep_host_from_discarding - undo squeezy_let_host_discard()
 * @p: the partition; by cgroup_mutex
 *
 * Return: false if the host has discarded it already.
 */
bool squeezy_keep_host_from_discarding(struct squeezy_partition *p)
{
	return !zone_is_llfree(&p->zone) || llfree_undoom(p->zone.llfree);
}

/**
 * squeezy_forget_doom - nothing is left of what was doomed
 * @p: the partition, draining, all of it free
 */
void squeezy_forget_doom(struct squeezy_partition *p)
{
	if (zone_is_llfree(&p->zone))
		llfree_forget_doom(p->zone.llfree);
	WRITE_ONCE(p->doomed, false);
}

/**
 * squeezy_show - make the memory of a partition visible, as far as it is online
 * @p: the partition, hidden, all of it free
 *
 * In counters, and to those who walk page frames. The sections' online bits are
 * otherwise only written while memory is hotplugged, which
 * __squeezy_veto_offline() keeps away from them.
 */
void squeezy_show(struct squeezy_partition *p)
{
	if (!p->online_pages)
		return;

	page_offline_begin();
	online_mem_sections(p->start_pfn, p->start_pfn + p->online_pages);
	page_offline_end();

	mod_zone_page_state(&p->zone, NR_FREE_PAGES, squeezy_pages_free(p));
	totalram_pages_add(squeezy_managed_pages(p));
}

/**
 * squeezy_hide - undo squeezy_show()
 * @p: the partition, visible, all of it free
 */
void squeezy_hide(struct squeezy_partition *p)
{
	if (!p->online_pages)
		return;

	page_offline_begin();
	offline_mem_sections(p->start_pfn, p->start_pfn + p->online_pages);
	page_offline_end();

	mod_zone_page_state(&p->zone, NR_FREE_PAGES,
			    -(long)squeezy_pages_free(p));
	totalram_pages_add(-(long)squeezy_managed_pages(p));
}
