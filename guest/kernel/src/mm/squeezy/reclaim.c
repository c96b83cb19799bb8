// SPDX-License-Identifier: GPL-2.0-only
/*
 * Get back what only reclaim can, when a partition is full.
 *
 * Without swap that is little: memory that user space marked with MADV_FREE, and
 * the unmapped parts of transparent huge pages, which wait on a queue for
 * somebody to split them. kswapd and direct reclaim never see these pages: they
 * stay on the lists of anonymous memory, which nobody scans without swap. A walk
 * over the page frames finds them.
 */
#include <linux/jiffies.h>
#include <linux/mm.h>
#include <linux/mm_inline.h>
#include <linux/swap.h>
#include <linux/wait.h>
#include <linux/workqueue.h>

#include "../internal.h"
#include "core.h"
#include "counters.h"
#include "page.h"
#include "reclaim.h"
#include "zone.h"
#include <trace/events/squeezy.h>

static bool squeezy_split(struct folio *folio)
{
	bool split;

	if (!folio_test_partially_mapped(folio) || !folio_trylock(folio))
		return false;
	split = !split_folio(folio);
	folio_unlock(folio);
	return split;
}

/* Enough for a while. Who finds less has been all around the partition. */
#define SQUEEZY_RECLAIM_BATCH	SWAP_CLUSTER_MAX

/* Isolate lazily freed folios and split others, from the cursor on. */
static unsigned long squeezy_isolate(struct squeezy_partition *p,
				     unsigned long *left,
				     struct list_head *lazyfree)
{
	const unsigned long pages = squeezy_layout.partition_pages;
	unsigned long isolated = 0, split = 0;

	while (*left && isolated + split < SQUEEZY_RECLAIM_BATCH) {
		struct folio *folio = squeezy_folio_at(p->start_pfn + p->cursor);
		unsigned long step = folio ? folio_nr_pages(folio) : 1;

		if (folio && folio_test_anon(folio)) {
			if (!folio_test_swapbacked(folio)) {
				if (folio_isolate_lru(folio)) {
					list_add_tail(&folio->lru, lazyfree);
					isolated++;
				}
			} else if (folio_test_large(folio)) {
				split += squeezy_split(folio);
			}
		}
		if (folio)
			folio_put(folio);
		if (!(*left & 1023))
			cond_resched();
		step = min(step, *left);
		*left -= step;
		p->cursor += step;
		if (p->cursor >= pages)
			p->cursor = 0;
	}
	return split;
}

/* Returns how many folios were reclaimed or split, all around if need be. */
static unsigned long squeezy_walk(struct squeezy_partition *p)
{
	unsigned long left = squeezy_layout.partition_pages;
	unsigned long reclaimed = 0, split = 0;

	while (left && reclaimed + split < SQUEEZY_RECLAIM_BATCH) {
		LIST_HEAD(lazyfree);

		split += squeezy_isolate(p, &left, &lazyfree);
		reclaimed += reclaim_pages(&lazyfree);
	}
	trace_squeezy_reclaim(p->number, reclaimed, split);
	return reclaimed + split;
}

/*
 * Walks that find little, one after the other, are all that the partition's
 * processes still do. Some of them have to end, as if there were nothing.
 */
static bool squeezy_is_thrashing(struct squeezy_partition *p,
				 unsigned long start, unsigned long found)
{
	if (found >= SQUEEZY_RECLAIM_BATCH ||
	    time_after(start, p->last_poor_walk + HZ))
		p->poor_walks = 0;
	if (found >= SQUEEZY_RECLAIM_BATCH)
		return false;
	p->last_poor_walk = jiffies;
	if (++p->poor_walks < MAX_RECLAIM_RETRIES)
		return false;
	p->poor_walks = 0;
	return true;
}

/*
 * Folio batches of CPUs can hold the last reference of freed memory, or hide that
 * it was freed lazily. To empty them takes work on every CPU, which no cgroup pays
 * for: full partitions get that done together, and not often.
 */
#define SQUEEZY_LRU_DRAIN_PAUSE	(HZ / 10)

static DECLARE_WAIT_QUEUE_HEAD(squeezy_lru_drain_waiters);

/* Drains that have begun, and that have ended; only the work writes them. */
static unsigned long squeezy_lru_drains_begun, squeezy_lru_drains_ended;
/* When the last of them began, in jiffies. */
static unsigned long squeezy_last_lru_drain =
	INITIAL_JIFFIES - SQUEEZY_LRU_DRAIN_PAUSE;

static void squeezy_lru_drain_fn(struct work_struct *work)
{
	const unsigned long number = squeezy_lru_drains_begun + 1;

	WRITE_ONCE(squeezy_last_lru_drain, jiffies);
	/* Who sees the old number has let go of its folios before the drain. */
	smp_store_release(&squeezy_lru_drains_begun, number);
	lru_add_drain_all();
	squeezy_count(SQUEEZY_LRU_DRAINS, 1);
	WRITE_ONCE(squeezy_lru_drains_ended, number);
	wake_up_all(&squeezy_lru_drain_waiters);
}

static DECLARE_DELAYED_WORK(squeezy_lru_drain_work, squeezy_lru_drain_fn);

static void squeezy_lru_drain(void)
{
	/* Pairs with smp_store_release() in squeezy_lru_drain_fn(). */
	const unsigned long begun = smp_load_acquire(&squeezy_lru_drains_begun);
	const unsigned long since =
		jiffies - READ_ONCE(squeezy_last_lru_drain);

	queue_delayed_work(system_unbound_wq, &squeezy_lru_drain_work,
			   since < SQUEEZY_LRU_DRAIN_PAUSE ?
				SQUEEZY_LRU_DRAIN_PAUSE - since : 0);
	/* Without memory for a worker it can take long; we are not to wait for that. */
	wait_event_killable_timeout(squeezy_lru_drain_waiters,
				    READ_ONCE(squeezy_lru_drains_ended) > begun,
				    HZ);
}

/**
 * squeezy_reclaim - reclaim lazily freed memory and parts of huge pages
 * @p: the partition, assigned and full
 *
 * Return: true if there is free memory to be had now; false if there is none, or
 * so little and so often that the partition counts as full.
 */
bool squeezy_reclaim(struct squeezy_partition *p)
{
	const unsigned long start = jiffies;
	unsigned long found;

	lockdep_assert_held(&p->reclaim_lock);

	lru_add_drain();
	found = squeezy_walk(p);
	if (!found) {
		squeezy_lru_drain();
		found = squeezy_walk(p);
	}
	if (found)
		return !squeezy_is_thrashing(p, start, found);
	squeezy_flush_cpus(p);
	return squeezy_pages_available(p);
}
