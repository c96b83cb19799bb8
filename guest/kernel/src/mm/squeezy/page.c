// SPDX-License-Identifier: GPL-2.0-only
/*
 * Which page belongs to which partition.
 */
#include <linux/mm.h>

#include "page.h"
#include "shared.h"

/**
 * squeezy_pfn_partition - the partition whose slot a page frame is in
 * @pfn: the page frame, which need not be plugged
 *
 * Return: NULL if it is in none.
 */
struct squeezy_partition *squeezy_pfn_partition(unsigned long pfn)
{
	unsigned long slot;

	if (!squeezy_enabled() || pfn < squeezy_layout.first_pfn)
		return NULL;
	slot = (pfn - squeezy_layout.first_pfn) / squeezy_layout.slot_pages;
	return slot < squeezy_layout.nr ? squeezy_partitions[slot] : NULL;
}

/* Ids in page->flags count from 1: 0 is an ordinary page. */
static struct squeezy_partition *squeezy_id_partition(unsigned int id)
{
	return squeezy_partitions[id - 1];
}

/**
 * squeezy_page_zone - the zone of a partition's page
 * @page: a page for which squeezy_page() is true
 */
struct zone *squeezy_page_zone(const struct page *page)
{
	return &squeezy_id_partition(squeezy_page_id(page))->zone;
}

/**
 * squeezy_folio_partition - the partition that a folio lies in
 * @folio: any folio
 *
 * Return: NULL if it lies in none.
 */
struct squeezy_partition *squeezy_folio_partition(struct folio *folio)
{
	if (!squeezy_page(&folio->page))
		return NULL;
	return squeezy_id_partition(squeezy_page_id(&folio->page));
}

/**
 * squeezy_folio_at - a reference to the LRU folio that starts at a page
 * @pfn: a page of a partition
 *
 * Follows damon_get_folio().
 *
 * Return: NULL if none starts there.
 */
struct folio *squeezy_folio_at(unsigned long pfn)
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

/**
 * squeezy_zone_for_pfn - where to online a range of memory
 * @pfn: its first page
 *
 * Return: a partition's zone, the node's ZONE_MOVABLE for the shared
 * partition, NULL for memory that is none of ours.
 */
struct zone *squeezy_zone_for_pfn(unsigned long pfn)
{
	struct squeezy_partition *p = squeezy_pfn_partition(pfn);

	if (p)
		return &p->zone;
	if (!squeezy_enabled() || pfn >= squeezy_layout.first_pfn ||
	    squeezy_layout.first_pfn - pfn > squeezy_layout.shared_slot_pages)
		return NULL;
	return squeezy_shared_zone();
}

/**
 * squeezy_page_flags - what a page's flags say about its partition
 * @pfn: the page, whose struct page is being initialized
 */
unsigned long squeezy_page_flags(unsigned long pfn)
{
	struct squeezy_partition *p = squeezy_pfn_partition(pfn);

	return p ? (unsigned long)(p->number + 1) << SQUEEZY_PGSHIFT : 0;
}

/**
 * __squeezy_next_zone - helper of next_zone()
 * @id: id of a partition, or 0 to start
 */
struct zone *__squeezy_next_zone(unsigned int id)
{
	return id < squeezy_layout.nr ? &squeezy_id_partition(id + 1)->zone :
					NULL;
}

/**
 * __squeezy_veto_offline - must nobody offline this memory?
 * @start_pfn: its first page
 * @nr_pages: how many
 *
 * The sections of an unplugged partition are offline already, and its free pages
 * must not be isolated.
 */
bool __squeezy_veto_offline(unsigned long start_pfn, unsigned long nr_pages)
{
	return squeezy_pfn_partition(start_pfn);
}
