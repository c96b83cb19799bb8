// SPDX-License-Identifier: GPL-2.0-only
/*
 * Pages that memory_failure() found free and took off the free lists.
 *
 * They are nobody's: a partition is as good as free without them, and whoever it
 * is assigned to has that much less. What the device plugs anew is other memory
 * of the host, so the pages come back when the partition has been unplugged.
 *
 * A page that failed while it was in use is none of these: the kernel keeps it,
 * and with it the partition.
 *
 * unpoison_memory(), for which only kernels that are made for tests have a caller,
 * puts a page back in the same way while its partition is plugged. What failed in
 * use it frees like any page, so a drained partition that it was in is free then.
 */
#include <linux/mm.h>
#include <linux/vmstat.h>

#include "../internal.h"
#include "failed.h"

/*
 * The next one that memory_failure() is done with, or NULL. It marks the page
 * first, and takes its reference last.
 */
static struct page *squeezy_next_failed(unsigned long *pfn, unsigned long end)
{
	for (; *pfn < end; ++*pfn) {
		struct page *page = pfn_to_page(*pfn);

		if (PageHWPoison(page) && page_count(page) == 1 &&
		    page_private(page) == MAGIC_HWPOISON)
			return page;
	}
	return NULL;
}

/* Next to always nothing has failed, and no page is looked at. */
static bool squeezy_nothing_failed(void)
{
	return !atomic_long_read(&num_poisoned_pages);
}

/**
 * squeezy_pages_failed - pages of a partition that failed while they were free
 * @p: the partition, plugged
 */
unsigned long squeezy_pages_failed(struct squeezy_partition *p)
{
	const unsigned long end = p->start_pfn + p->online_pages;
	unsigned long pfn, pages = 0;

	if (squeezy_nothing_failed())
		return 0;
	for (pfn = p->start_pfn; squeezy_next_failed(&pfn, end); pfn++)
		pages++;
	return pages;
}

/**
 * squeezy_renew_failed - put failed pages of an unplugged partition back
 * @p: the partition, invisible
 */
void squeezy_renew_failed(struct squeezy_partition *p)
{
	const unsigned long end = p->start_pfn + p->online_pages;
	unsigned long pfn;
	struct page *page;

	lockdep_assert_held(&squeezy_mutex);
	if (squeezy_nothing_failed())
		return;
	for (pfn = p->start_pfn; (page = squeezy_next_failed(&pfn, end)); pfn++) {
		if (!put_page_back_buddy(page))
			continue;
		num_poisoned_pages_sub(pfn, 1);
		/* What is invisible does not count as free. */
		mod_zone_page_state(&p->zone, NR_FREE_PAGES, -1);
	}
}
