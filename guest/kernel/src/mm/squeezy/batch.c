// SPDX-License-Identifier: GPL-2.0-only
/*
 * Blocks that are off the free lists of a partition while the host is told that
 * they are free.
 *
 * Page frames are walked in order, not free lists: each block is looked at once
 * whatever else happens to the lists, zone->lock is held for a bounded time,
 * and neighbours on the way become one entry of a request.
 *
 * Who needs a page that is in a batch waits for it: see squeezy_wait_for_batch().
 */
#include <linux/list.h>
#include <linux/mm.h>
#include <linux/page-isolation.h>
#include <linux/sched/signal.h>
#include <linux/wait.h>

#include "../internal.h"
#include "../llfree/zone.h"
#include "batch.h"
#include "core.h"

/* Blocks looked at, taken or put back before zone->lock is released for others. */
#define SQUEEZY_BATCH_SLICE	1024

/* Allocations that wait for the blocks of a batch. */
static DECLARE_WAIT_QUEUE_HEAD(squeezy_batch_waiters);

/**
 * squeezy_wait_for_batch - wait until no block is off the free lists
 * @p: the partition
 *
 * Where LLFree has them, until the host has none in hand, but not for ever.
 * Ends early, with blocks off the lists, for who is being killed.
 *
 * Return: what squeezy_batch_interfered() wants to know.
 */
unsigned int squeezy_wait_for_batch(struct squeezy_partition *p)
{
	might_sleep();
	if (zone_is_llfree(&p->zone))
		return llfree_wait_for_host(&p->zone);
	wait_event_killable(squeezy_batch_waiters,
			    !(READ_ONCE(p->batches) & 1));
	return READ_ONCE(p->batches);
}

/**
 * squeezy_batch_interfered - may an allocation have failed for a report?
 * @p: the partition
 * @batches: what squeezy_wait_for_batch() returned before the allocation
 */
bool squeezy_batch_interfered(struct squeezy_partition *p,
			      unsigned int batches)
{
	if (zone_is_llfree(&p->zone))
		return llfree_host_interfered(&p->zone, batches);
	return (batches & 1) || READ_ONCE(p->batches) != batches;
}

/**
 * squeezy_batch_init - start with an empty batch
 * @batch: the batch
 */
void squeezy_batch_init(struct squeezy_batch *batch)
{
	sg_init_table(batch->sgl, PAGE_REPORTING_CAPACITY);
	batch->nents = 0;
	batch->bytes = 0;
	INIT_LIST_HEAD(&batch->isolated);
	batch->blocks = 0;
}

/**
 * squeezy_batch_add - add a free block to what the device is told
 * @batch: the batch, to which blocks are added by rising address
 * @page: the block
 * @order: its order
 *
 * Return: false if there is no room for it.
 */
bool squeezy_batch_add(struct squeezy_batch *batch, struct page *page,
		       unsigned int order)
{
	const unsigned int bytes = PAGE_SIZE << order;
	struct scatterlist *last = NULL;

	if (batch->bytes + bytes > SQUEEZY_BATCH_BYTES)
		return false;

	if (batch->nents)
		last = &batch->sgl[batch->nents - 1];
	if (last && sg_phys(last) + last->length == page_to_phys(page))
		last->length += bytes;
	else if (batch->nents < PAGE_REPORTING_CAPACITY)
		sg_set_page(&batch->sgl[batch->nents++], page, bytes, 0);
	else
		return false;
	batch->bytes += bytes;
	return true;
}

static void squeezy_relax(struct zone *zone, unsigned int *slice)
{
	lockdep_assert_held(&zone->lock);
	if (++*slice % SQUEEZY_BATCH_SLICE)
		return;
	spin_unlock_irq(&zone->lock);
	cond_resched();
	spin_lock_irq(&zone->lock);
}

/**
 * squeezy_isolate_batch - take free blocks off the free lists
 * @p: the partition, held by the caller
 * @batch: where to put them, instead of what was there
 * @pfn: where to begin, a multiple of 1 << @order; moved on
 * @order: order of the smallest blocks
 *
 * Each block on the way begins at a multiple of 1 << @order, too. One that becomes
 * free meanwhile may be found or not, and one that the host knows to be free is
 * left out.
 */
void squeezy_isolate_batch(struct squeezy_partition *p,
			   struct squeezy_batch *batch, unsigned long *pfn,
			   unsigned int order)
{
	const unsigned long end = p->start_pfn + squeezy_layout.partition_pages;
	struct zone *zone = &p->zone;
	unsigned int slice = 0;

	squeezy_batch_init(batch);
	spin_lock_irq(&zone->lock);
	while (*pfn < end) {
		struct page *page = pfn_to_page(*pfn);
		unsigned int found = order;

		if (PageBuddy(page) && buddy_order(page) >= order) {
			found = buddy_order(page);
			if (!PageReported(page) &&
			    !is_migrate_isolate_page(page)) {
				if (!squeezy_batch_add(batch, page, found))
					break;
				if (!batch->blocks++)
					WRITE_ONCE(p->batches, p->batches + 1);
				isolate_free_block(page, found);
				set_page_private(page, found);
				list_add_tail(&page->lru, &batch->isolated);
			}
		}
		*pfn += 1UL << found;
		squeezy_relax(zone, &slice);
	}
	spin_unlock_irq(&zone->lock);
}

static void squeezy_put_blocks_back(struct squeezy_partition *p,
				    struct squeezy_batch *batch,
				    void (*put_back)(struct page *page,
						     unsigned int order))
{
	struct zone *zone = &p->zone;
	struct page *page, *next;
	unsigned int slice = 0;

	spin_lock_irq(&zone->lock);
	list_for_each_entry_safe(page, next, &batch->isolated, lru) {
		const unsigned int order = page_private(page);

		list_del(&page->lru);
		set_page_private(page, 0);
		put_back(page, order);
		squeezy_relax(zone, &slice);
	}
	/* Even again: whoever failed before sees a change. */
	WRITE_ONCE(p->batches, p->batches + 1);
	spin_unlock_irq(&zone->lock);
	wake_up_all(&squeezy_batch_waiters);
}

/**
 * squeezy_put_batch_back - put blocks that the host was not told of back
 * @p: the partition
 * @batch: the blocks, not none
 */
void squeezy_put_batch_back(struct squeezy_partition *p,
			    struct squeezy_batch *batch)
{
	squeezy_put_blocks_back(p, batch, putback_free_block);
}

/**
 * squeezy_put_reported_batch_back - put blocks that the host was told of back
 * @p: the partition
 * @batch: the blocks, not none
 *
 * They are left out of the next report, unless they are used before.
 */
void squeezy_put_reported_batch_back(struct squeezy_partition *p,
				     struct squeezy_batch *batch)
{
	squeezy_put_blocks_back(p, batch, putback_reported_block);
}
