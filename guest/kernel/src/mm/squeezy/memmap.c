// SPDX-License-Identifier: GPL-2.0-only
/*
 * Memory for the memory maps of partitions, set aside at boot.
 *
 * A partition's memory map is needed when it is plugged for the first time, for
 * an instance that is to start, and the instances that are there may have filled
 * ordinary memory by then. So it is taken while nobody else is there. The pages
 * are not written to before they are used: until then the host has nothing behind
 * them.
 */
#include <linux/bits.h>
#include <linux/gfp.h>
#include <linux/list.h>
#include <linux/memory.h>
#include <linux/mm.h>
#include <linux/mmzone.h>
#include <linux/sched.h>
#include <linux/sizes.h>
#include <linux/vmstat.h>

#include "core.h"
#include "memmap.h"

/* What vmemmap_populate() maps as one: the memory map of one section. */
#define SQUEEZY_MEMMAP_ORDER	(PMD_SHIFT - PAGE_SHIFT)
#define SQUEEZY_MEMMAP_PAGES	BIT(SQUEEZY_MEMMAP_ORDER)

/* Bytes of base memory that a few instances get along with beside all this. */
#define SQUEEZY_MIN_BASE	SZ_64M

/* Protected by squeezy_mutex. */
static LIST_HEAD(squeezy_memmap_pages);

/* Whose allocations come from there; written under squeezy_mutex. */
static struct task_struct *squeezy_memmap_user;

/**
 * squeezy_memmap_reserve - set memory aside for the memory maps of all partitions
 *
 * As much as base memory can spare. Says so if that is not all.
 */
void squeezy_memmap_reserve(void)
{
	const u64 pages = (u64)squeezy_layout.nr * squeezy_layout.slot_pages;
	const u64 needed = PFN_UP(pages * sizeof(struct page));
	u64 reserved = 0;

	lockdep_assert_held(&squeezy_mutex);
	while (reserved < needed &&
	       global_zone_page_state(NR_FREE_PAGES) >
	       PFN_DOWN(SQUEEZY_MIN_BASE) + SQUEEZY_MEMMAP_PAGES) {
		struct page *page = alloc_pages(GFP_KERNEL | __GFP_NORETRY |
						__GFP_NOWARN,
						SQUEEZY_MEMMAP_ORDER);

		if (!page)
			break;
		list_add_tail(&page->lru, &squeezy_memmap_pages);
		reserved += SQUEEZY_MEMMAP_PAGES;
	}
	if (reserved < needed)
		pr_warn("squeezy: the memory map of all partitions needs %llu MiB of the %lu MiB of base memory, and %llu MiB could be set aside; give the VM more\n",
			needed >> (20 - PAGE_SHIFT),
			totalram_pages() >> (20 - PAGE_SHIFT),
			reserved >> (20 - PAGE_SHIFT));
}

/**
 * squeezy_memmap_available - is there memory for the memory map of one block more?
 *
 * For all of it: when there is none in the middle of a block, the core leaves the
 * sections it has added before behind, and the block cannot be added again.
 * Beside what was set aside, only memory that is to spare. To allocate until there
 * is none would leave nothing for everybody else meanwhile, and have them killed.
 */
bool squeezy_memmap_available(void)
{
	const size_t sections = memory_block_size_bytes() >> SECTION_SIZE_BITS;
	size_t reserved;

	lockdep_assert_held(&squeezy_mutex);
	reserved = list_count_nodes(&squeezy_memmap_pages);
	return reserved >= sections ||
	       si_mem_available() >
	       (long)((sections - reserved + 1) * SQUEEZY_MEMMAP_PAGES);
}

/**
 * squeezy_memmap_begin - the caller adds memory of a partition from now on
 *
 * The memory map for it comes from what was set aside.
 */
void squeezy_memmap_begin(void)
{
	lockdep_assert_held(&squeezy_mutex);
	WRITE_ONCE(squeezy_memmap_user, current);
}

/**
 * squeezy_memmap_end - undo squeezy_memmap_begin()
 */
void squeezy_memmap_end(void)
{
	lockdep_assert_held(&squeezy_mutex);
	WRITE_ONCE(squeezy_memmap_user, NULL);
}

/**
 * __squeezy_memmap_page - a page for a memory map
 * @order: its order
 *
 * Return: NULL unless it is for a partition's and there is one.
 */
struct page *__squeezy_memmap_page(unsigned int order)
{
	struct page *page;

	/* Nobody else can become the user while we are not, nor cease to be. */
	if (READ_ONCE(squeezy_memmap_user) != current ||
	    order != SQUEEZY_MEMMAP_ORDER)
		return NULL;
	page = list_first_entry_or_null(&squeezy_memmap_pages, struct page, lru);
	if (page)
		list_del(&page->lru);
	return page;
}
