// SPDX-License-Identifier: GPL-2.0-only
/*
 * Which zones LLFree has the pages of, and the state of them, which the host maps.
 *
 * llfree= on the command line says which: `partitions' are the private partitions
 * of mm/squeezy/, `all' is the memory that the kernel has booted with, too, but
 * for ZONE_DMA.
 */
#include <linux/gfp.h>
#include <linux/init.h>
#include <linux/io.h>
#include <linux/mm.h>
#include <linux/slab.h>

#include "setup.h"
#include "sysfs.h"
#include "zone.h"
#include <trace/events/llfree.h>

DEFINE_STATIC_KEY_FALSE(llfree_key);

static bool wants_partitions __ro_after_init;
static bool wants_boot_memory __ro_after_init;

/* In pages of its own: the host maps nothing else. */
static struct llfree_header *header;
/* Bytes of it that are in use. */
static u64 used;

static int __init parse(char *text)
{
	if (text && !strcmp(text, "partitions")) {
		wants_partitions = true;
	} else if (text && !strcmp(text, "all")) {
		wants_partitions = true;
		wants_boot_memory = true;
	} else {
		pr_err("llfree: llfree= is not understood: it can be `partitions' or `all'\n");
	}
	return 0;
}
early_param("llfree", parse);

/**
 * llfree_wants_partitions() - are partitions to be LLFree's?
 */
bool llfree_wants_partitions(void)
{
	return wants_partitions;
}

/**
 * llfree_wants_boot_memory() - is the memory to be LLFree's that the kernel boots
 *	with?
 */
bool llfree_wants_boot_memory(void)
{
	return wants_boot_memory;
}

static u64 zone_bytes(unsigned long pages)
{
	return llfree_state_bytes(DIV_ROUND_UP(pages, LLFREE_AREA_PAGES));
}

/**
 * llfree_header_bytes() - how much of the state is no zone's
 */
u64 llfree_header_bytes(void)
{
	return ALIGN(sizeof(*header), 64);
}

/**
 * llfree_begin() - begin the state
 * @memory: for it: pages, zeroed
 * @bytes: of these
 */
void llfree_begin(void *memory, u64 bytes)
{
	header = memory;
	header->magic = LLFREE_MAGIC;
	header->version = LLFREE_VERSION;
	header->header_bytes = sizeof(*header);
	header->total_bytes = bytes;
	header->page_shift = PAGE_SHIFT;
	used = llfree_header_bytes();
	static_branch_enable(&llfree_key);
}

/**
 * llfree_prepare() - make room for the state of zones
 * @zones: how many
 * @pages: of each of them
 *
 * What llfree_keep_room() has kept is used first.
 *
 * Return: 0, or -ENOMEM.
 */
int llfree_prepare(unsigned int zones, unsigned long pages)
{
	const u64 bytes = zones * zone_bytes(pages);
	const u64 total = PAGE_ALIGN(llfree_header_bytes() + bytes);
	void *memory;

	if (header)
		return used + bytes <= header->total_bytes &&
		       header->zones + zones <= LLFREE_MAX_ZONES ? 0 : -ENOMEM;
	if (WARN_ON_ONCE(zones > LLFREE_MAX_ZONES))
		return -EINVAL;
	memory = alloc_pages_exact(total, GFP_KERNEL | __GFP_ZERO | __GFP_NOWARN);
	if (!memory)
		return -ENOMEM;
	llfree_begin(memory, total);
	if (llfree_create_files(virt_to_phys(header), total))
		pr_warn("llfree: no files in sysfs: out of memory\n");
	return 0;
}

/**
 * llfree_attach_zone() - have LLFree keep the pages of a zone
 * @kernel_zone: what is known of it, all zero
 * @zone: which has no pages yet
 * @start_pfn: of its first page
 * @pages: how many it may have
 * @name: for people, and for its directory in sysfs
 *
 * All of them are allocated until they are freed.
 *
 * Return: 0, or -EINVAL if there is no room for the state, or @start_pfn is not a
 * multiple of LLFREE_TREE_PAGES.
 */
int llfree_attach_zone(struct llfree_kernel_zone *kernel_zone, struct zone *zone,
		       unsigned long start_pfn, unsigned long pages,
		       const char *name)
{
	struct llfree_description *description;

	if (WARN_ON_ONCE(!IS_ALIGNED(start_pfn, LLFREE_TREE_PAGES) ||
			 header->zones == LLFREE_MAX_ZONES ||
			 used + zone_bytes(pages) > header->total_bytes))
		return -EINVAL;
	description = &header->zone[header->zones];
	description->start_page = start_pfn;
	description->areas = DIV_ROUND_UP(pages, LLFREE_AREA_PAGES);
	description->offset = used;
	strscpy(description->name, name);
	used += zone_bytes(pages);

	strscpy(kernel_zone->name, name);
	llfree_attach(&kernel_zone->view, header, description);
	llfree_init(&kernel_zone->view);
	zone->llfree = &kernel_zone->view;
	/* What is above, before the host may look at it. */
	virt_store_release(&header->zones, header->zones + 1);
	trace_llfree_zone(kernel_zone->name, start_pfn, description->areas);
	return 0;
}

/**
 * llfree_add_zone() - have LLFree keep the pages of a zone, after the boot
 * @zone: which has no pages yet
 * @start_pfn: of its first page, a multiple of LLFREE_TREE_PAGES
 * @pages: how many it may have
 * @name: for people, and for its directory in sysfs
 *
 * There has to be room for the state, by llfree_prepare().
 *
 * Return: 0, or -ENOMEM.
 */
int llfree_add_zone(struct zone *zone, unsigned long start_pfn,
		    unsigned long pages, const char *name)
{
	struct llfree_kernel_zone *kernel_zone;
	int rc;

	kernel_zone = kzalloc(sizeof(*kernel_zone), GFP_KERNEL);
	if (!kernel_zone)
		return -ENOMEM;
	rc = llfree_attach_zone(kernel_zone, zone, start_pfn, pages, name);
	if (rc) {
		kfree(kernel_zone);
		return rc;
	}
	if (llfree_create_zone_files(kernel_zone))
		pr_warn("llfree: no files in sysfs for %s: out of memory\n", name);
	return 0;
}

/* Of zones that are older than sysfs. */
static int __init create_files(void)
{
	struct zone *zone;

	if (!header)
		return 0;
	if (llfree_create_files(virt_to_phys(header), header->total_bytes))
		goto out;
	for_each_zone(zone)
		if (zone_is_llfree(zone) &&
		    llfree_create_zone_files(llfree_kernel_zone(zone)))
			goto out;
	return 0;

out:
	pr_warn("llfree: no files in sysfs: out of memory\n");
	return 0;
}
subsys_initcall(create_files);
