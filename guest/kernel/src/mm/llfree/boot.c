// SPDX-License-Identifier: GPL-2.0-only
/*
 * llfree=all: the memory that the kernel has booted with is LLFree's, but for
 * ZONE_DMA, which is too small, and ZONE_MOVABLE, to which memory is added later.
 *
 * A zone spans holes, and what has never been given to the page allocator: the
 * kernel itself, and this state. All of that is allocated for ever. It costs 66
 * bytes for 2 MiB.
 */
#include <linux/init.h>
#include <linux/memblock.h>
#include <linux/mm.h>

#include "setup.h"

static struct llfree_kernel_zone boot_zones[MAX_NR_ZONES];
static bool has_boot_memory __ro_after_init;
static u64 kept_bytes __initdata;

/**
 * __llfree_has_boot_memory() - is the memory LLFree's that the kernel booted with?
 */
bool __llfree_has_boot_memory(void)
{
	return has_boot_memory;
}

/**
 * llfree_keep_room() - keep room in the state for zones that are added later
 * @zones: how many
 * @pages: of each of them
 */
void __init llfree_keep_room(unsigned int zones, unsigned long pages)
{
	kept_bytes += zones *
		      llfree_state_bytes(DIV_ROUND_UP(pages, LLFREE_AREA_PAGES));
}

static bool __init is_boot_zone(const struct zone *zone)
{
	return zone_idx(zone) != ZONE_DMA && zone_idx(zone) != ZONE_MOVABLE &&
	       IS_ALIGNED(zone->zone_start_pfn, LLFREE_TREE_PAGES);
}

/**
 * llfree_early_init() - give LLFree the zones, before it is given their pages
 *
 * Memory is still memblock's.
 */
void __init llfree_early_init(void)
{
	u64 bytes = llfree_header_bytes() + kept_bytes;
	struct zone *zone;
	void *memory;

	if (!llfree_wants_boot_memory())
		return;
	if (page_poisoning_enabled()) {
		/* It takes what the host gave back for corruption. */
		pr_err("llfree: booting without: page_poison=1 is on\n");
		return;
	}
	for_each_populated_zone(zone)
		if (is_boot_zone(zone))
			bytes += llfree_state_bytes(DIV_ROUND_UP(zone->spanned_pages,
								 LLFREE_AREA_PAGES));
	bytes = PAGE_ALIGN(bytes);
	memory = memblock_alloc(bytes, PAGE_SIZE);
	if (!memory) {
		pr_err("llfree: booting without: no %llu bytes for its state\n",
		       bytes);
		return;
	}
	llfree_begin(memory, bytes);
	for_each_populated_zone(zone)
		if (is_boot_zone(zone))
			llfree_attach_zone(&boot_zones[zone_idx(zone)], zone,
					   zone->zone_start_pfn,
					   zone->spanned_pages, zone->name);
	has_boot_memory = true;
	pr_info("llfree: state of %llu bytes at %#llx\n", bytes,
		(u64)virt_to_phys(memory));
}
