// SPDX-License-Identifier: GPL-2.0-only
/*
 * Memory for the state, from memblock: the page allocator has no blocks that are
 * large enough for more than 120 GiB of partitions.
 *
 * llfree=all: the memory that the kernel has booted with is LLFree's, but for
 * ZONE_DMA, which is too small, and ZONE_MOVABLE, to which memory is added later:
 * mm/squeezy/ makes that a zone of LLFree's if it is the shared partition's alone.
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
 * __llfree_has_boot_memory() - does LLFree have the memory that the kernel booted
 *	with?
 */
bool __llfree_has_boot_memory(void)
{
	return has_boot_memory;
}

/**
 * llfree_keep_room() - keep room in the state for zones that are added later
 * @bytes: of llfree_zone_bytes(), for all of them
 */
void __init llfree_keep_room(u64 bytes)
{
	kept_bytes += bytes;
}

static bool __init is_boot_zone(const struct zone *zone)
{
	return zone_idx(zone) != ZONE_DMA && zone_idx(zone) != ZONE_MOVABLE &&
	       IS_ALIGNED(zone->zone_start_pfn, LLFREE_TREE_PAGES);
}

static u64 __init boot_zones_bytes(void)
{
	struct zone *zone;
	u64 bytes = 0;

	for_each_populated_zone(zone)
		if (is_boot_zone(zone))
			bytes += llfree_zone_bytes(zone->spanned_pages);
	return bytes;
}

static void __init attach_boot_zones(void)
{
	struct zone *zone;

	for_each_populated_zone(zone)
		if (is_boot_zone(zone))
			llfree_attach_zone(&boot_zones[zone_idx(zone)], zone,
					   zone->zone_start_pfn,
					   zone->spanned_pages, zone->name);
	has_boot_memory = true;
}

/**
 * llfree_early_init() - begin the state, and give LLFree the zones, before it is
 *	given their pages
 *
 * Memory is still memblock's.
 */
void __init llfree_early_init(void)
{
	u64 bytes = kept_bytes;
	void *memory;

	if (!llfree_wants_partitions())
		return;
	if (page_poisoning_enabled()) {
		/* It takes what the host gave back for corruption. Nor are there partitions. */
		if (llfree_wants_boot_memory())
			pr_err("llfree: booting without: page_poison=1 is on\n");
		return;
	}
	if (llfree_wants_boot_memory())
		bytes += boot_zones_bytes();
	if (!bytes)
		return;
	bytes = PAGE_ALIGN(llfree_header_bytes() + bytes);
	memory = memblock_alloc(bytes, PAGE_SIZE);
	if (!memory) {
		pr_err("llfree: booting without: no %llu bytes for its state\n",
		       bytes);
		return;
	}
	llfree_begin(memory, bytes);
	if (llfree_wants_boot_memory())
		attach_boot_zones();
	pr_info("llfree: state of %llu bytes at %#llx\n", bytes,
		(u64)virt_to_phys(memory));
}
