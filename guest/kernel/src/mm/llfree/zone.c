// SPDX-License-Identifier: GPL-2.0-only
/*
 * The pages of a zone, as the page allocator asks for them and frees them.
 */
#include <linux/jiffies.h>
#include <linux/mm.h>
#include <linux/vmstat.h>

#include "counters.h"
#include "zone.h"

#define CREATE_TRACE_POINTS
#include <trace/events/llfree.h>

static noinline void trace_failure(const struct zone *zone, unsigned int order,
				   enum llfree_type type)
{
	trace_llfree_alloc_failed(llfree_kernel_zone(zone)->name, order, type,
				  llfree_free_pages(zone->llfree));
}

static struct page *count_allocated(struct zone *zone, long page, unsigned int order)
{
	mod_zone_page_state(zone, NR_FREE_PAGES, -(1L << order));
	return pfn_to_page(zone->llfree->start_page + page);
}

static noinline struct page *alloc_any(struct zone *zone, unsigned int order,
				       enum llfree_type type)
{
	bool evicted;
	const long page = llfree_get(zone->llfree, order, type, &evicted);

	if (page < 0) {
		if (trace_llfree_alloc_failed_enabled())
			trace_failure(zone, order, type);
		return NULL;
	}
	if (unlikely(evicted))
		llfree_count_event(LLFREE_EVICTED_ALLOCATIONS);
	return count_allocated(zone, page, order);
}

/**
 * llfree_alloc() - allocate pages of a zone, as rmqueue() does
 * @zone: of LLFree's
 * @order: log2 of how many pages
 * @migratetype: what for
 *
 * Waits for nobody, the host included. The usual case is by itself, and saves few
 * registers: it is a part of each page fault.
 */
struct page *llfree_alloc(struct zone *zone, unsigned int order,
			  int migratetype)
{
	enum llfree_type type = LLFREE_UNMOVABLE;
	long page;

	if (order >= LLFREE_AREA_ORDER)
		type = LLFREE_HUGE;
	else if (migratetype == MIGRATE_MOVABLE)
		type = LLFREE_MOVABLE;
	if (!order) {
		page = llfree_get_here(zone->llfree, type);
		if (page >= 0)
			return count_allocated(zone, page, 0);
	}
	return alloc_any(zone, order, type);
}

/**
 * llfree_free() - free pages of a zone, as __free_one_page() does
 * @zone: of LLFree's
 * @pfn: the first
 * @order: log2 of how many pages
 *
 * A full barrier comes after the pages are free.
 */
void llfree_free(struct zone *zone, unsigned long pfn, unsigned int order)
{
	struct llfree_zone *view = zone->llfree;

	/* The page stays allocated: whoever has it may go on with it. */
	if (WARN_ONCE(llfree_put(view, pfn - view->start_page, order),
		      "llfree: pages of order %u at %#lx are freed that nobody has\n",
		      order, pfn))
		return;
	mod_zone_page_state(zone, NR_FREE_PAGES, 1L << order);
}

/**
 * llfree_alloc_page() - allocate a page if it is free
 * @zone: of LLFree's
 * @pfn: the page
 */
bool llfree_alloc_page(struct zone *zone, unsigned long pfn)
{
	struct llfree_zone *view = zone->llfree;

	if (!llfree_get_page(view, pfn - view->start_page))
		return false;
	mod_zone_page_state(zone, NR_FREE_PAGES, -1);
	return true;
}

/**
 * llfree_has_page() - whether a page is free, as is_free_buddy_page() says
 * @zone: of LLFree's
 * @pfn: the page
 */
bool llfree_has_page(const struct zone *zone, unsigned long pfn)
{
	const struct llfree_zone *view = zone->llfree;

	return llfree_is_free(view, pfn - view->start_page);
}

/**
 * __llfree_page_is_free() - is a page free that the host may have nothing behind?
 * @page: of any zone
 */
bool __llfree_page_is_free(const struct page *page)
{
	const struct zone *zone = page_zone(page);

	return zone_is_llfree(zone) && llfree_has_page(zone, page_to_pfn(page));
}

/* How long free blocks are not counted again: it takes a millisecond for 20 GiB. */
#define BLOCKS_JIFFIES	(HZ / 20)

static void count_blocks(struct llfree_kernel_zone *kernel_zone)
{
	u64 counts[LLFREE_MAX_ORDER + 1];
	unsigned int order;

	BUILD_BUG_ON(ARRAY_SIZE(counts) != NR_PAGE_ORDERS);
	llfree_count_blocks(&kernel_zone->view, counts);
	for (order = 0; order < NR_PAGE_ORDERS; order++)
		WRITE_ONCE(kernel_zone->blocks[order], counts[order]);
	WRITE_ONCE(kernel_zone->blocks_until, jiffies + BLOCKS_JIFFIES);
}

/**
 * __llfree_free_blocks() - how many free blocks of each order a zone has
 * @zone: of LLFree's
 * @blocks: NR_PAGE_ORDERS numbers, which are set
 *
 * As it was a twentieth of a second ago at most: direct compaction asks before
 * each run, and kswapd again and again.
 */
void __llfree_free_blocks(const struct zone *zone, unsigned long *blocks)
{
	struct llfree_kernel_zone *kernel_zone = llfree_kernel_zone(zone);
	unsigned int order;

	if (time_after(jiffies, READ_ONCE(kernel_zone->blocks_until)))
		count_blocks(kernel_zone);
	for (order = 0; order < NR_PAGE_ORDERS; order++)
		blocks[order] = READ_ONCE(kernel_zone->blocks[order]);
}

static u32 area_of(const struct zone *zone, unsigned long pfn)
{
	return (pfn - zone->llfree->start_page) / LLFREE_AREA_PAGES;
}

/**
 * llfree_may_compact() - is it worth while to move pages out of a pageblock?
 * @zone: of LLFree's
 * @pfn: its first page
 *
 * Also if what moves has become rare around it: a few pages that stay keep their own
 * area, not the 16 MiB of their tree. Where nothing can be moved, Linux passes by
 * from then on.
 */
bool llfree_may_compact(const struct zone *zone, unsigned long pfn)
{
	struct llfree_kernel_zone *kernel_zone = llfree_kernel_zone(zone);
	const u32 area = area_of(zone, pfn);

	/* It is asked for each block, and looks at all of them. */
	if (time_after(jiffies, READ_ONCE(kernel_zone->emptiable_at))) {
		WRITE_ONCE(kernel_zone->emptiable, llfree_emptiable(zone->llfree));
		WRITE_ONCE(kernel_zone->emptiable_at, jiffies);
	}
	return llfree_is_emptiable(zone->llfree, area,
				   READ_ONCE(kernel_zone->emptiable));
}

/**
 * llfree_alloc_target() - allocate pages that compaction moves others to
 * @zone: of LLFree's
 * @pfn: one of these others
 * @order: log2 of how many pages
 */
struct page *llfree_alloc_target(struct zone *zone, unsigned long pfn,
				 unsigned int order)
{
	struct llfree_zone *view = zone->llfree;
	long page;

	if (order >= LLFREE_AREA_ORDER)
		return NULL;
	page = llfree_get_beside(view, area_of(zone, pfn), order);
	if (page < 0)
		return NULL;
	mod_zone_page_state(zone, NR_FREE_PAGES, -(1L << order));
	return pfn_to_page(view->start_page + page);
}

/**
 * __llfree_veto_isolation() - nobody isolates pages of LLFree's
 * @zone: of LLFree's
 * @report: whether to say so
 *
 * Isolated pages that are free must not be allocated, and there is no list that
 * they could be moved to: no memory is offlined here, and no gigantic page or
 * other range is made of it.
 */
bool __llfree_veto_isolation(const struct zone *zone, bool report)
{
	if (report)
		pr_info_ratelimited("llfree: pages of zone %s cannot be isolated\n",
				    llfree_kernel_zone(zone)->name);
	return true;
}
