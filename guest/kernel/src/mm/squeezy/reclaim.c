// SPDX-License-Identifier: GPL-2.0-only
/*
 * Get back what only reclaim can, when a partition is full.
 *
 * Without swap that is little: memory that user space marked with MADV_FREE, and
 * the unmapped parts of transparent huge pages, which wait on a queue for
 * somebody to split them. kswapd and direct reclaim look after zones that are on
 * a zonelist, and so never for these pages; a walk over the page frames does.
 */
#include <linux/mm.h>
#include <linux/mm_inline.h>
#include <linux/swap.h>

#include "../internal.h"
#include "partition.h"
#include <trace/events/squeezy.h>

/* Follows damon_get_folio(): a reference to the LRU folio that starts here. */
static struct folio *squeezy_folio_at(unsigned long pfn)
{
	struct page *page = pfn_to_page(pfn);
	struct folio *folio;

	if (PageTail(page))
		return NULL;
	folio = page_folio(page);
	if (!folio_test_lru(folio) || !folio_try_get(folio))
		return NULL;
	if (page_folio(page) != folio || !folio_test_lru(folio)) {
		folio_put(folio);
		return NULL;
	}
	return folio;
}

static bool squeezy_split(struct folio *folio)
{
	bool split;

	if (!folio_test_partially_mapped(folio) || !folio_trylock(folio))
		return false;
	split = !split_folio(folio);
	folio_unlock(folio);
	return split;
}

/**
 * squeezy_reclaim - reclaim lazily freed memory and parts of huge pages
 * @p: the partition, assigned and full
 *
 * Return: how many folios were reclaimed or split; 0 if there is nothing left.
 */
unsigned long squeezy_reclaim(struct squeezy_partition *p)
{
	const unsigned long end = p->start_pfn + squeezy_layout.partition_pages;
	unsigned long pfn = p->start_pfn, reclaimed, split = 0;
	LIST_HEAD(lazyfree);

	mutex_lock(&p->reclaim_lock);
	while (pfn < end) {
		struct folio *folio = squeezy_folio_at(pfn);

		if (!(pfn & 1023))
			cond_resched();
		if (!folio) {
			pfn++;
			continue;
		}
		pfn += folio_nr_pages(folio);

		if (folio_test_anon(folio) && !folio_test_swapbacked(folio)) {
			if (folio_isolate_lru(folio))
				list_add_tail(&folio->lru, &lazyfree);
		} else if (folio_test_anon(folio) && folio_test_large(folio)) {
			split += squeezy_split(folio);
		}
		folio_put(folio);
	}
	reclaimed = reclaim_pages(&lazyfree);
	mutex_unlock(&p->reclaim_lock);

	trace_squeezy_reclaim(p->number, reclaimed, split);
	return reclaimed + split;
}
