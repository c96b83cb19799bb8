// SPDX-License-Identifier: GPL-2.0-only
/*
 * Which zones LLFree has the pages of, and the state of them, which the host maps.
 *
 * llfree= on the command line says which: `partitions' are the private partitions
 * of mm/squeezy/, `all' is ordinary memory, too: what the kernel has booted with,
 * but for ZONE_DMA, and the shared partition.
 */
#include <linux/gfp.h>
#include <linux/init.h>
#include <linux/io.h>
#include <linux/memory.h>
#include <linux/mm.h>
#include <linux/notifier.h>
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
/* Zones that are added after the boot; the first of them has not been yet. */
static struct llfree_kernel_zone *added_zones;

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
 * llfree_wants_partitions() - is LLFree to have the pages of partitions?
 */
bool llfree_wants_partitions(void)
{
	return wants_partitions;
}

/**
 * llfree_wants_boot_memory() - is LLFree to have the memory that the kernel boots
 *	with?
 */
bool llfree_wants_boot_memory(void)
{
	return wants_boot_memory;
}

/**
 * llfree_zone_bytes() - how large the state of a zone of the kernel is
 * @pages: that it has
 */
u64 llfree_zone_bytes(unsigned long pages)
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
 * llfree_prepare() - make room for zones that are added
 * @zones: how many at most; nobody asks twice
 * @bytes: of llfree_zone_bytes(), for all of them
 *
 * That of the state has been kept by llfree_keep_room().
 *
 * Return: 0, or -ENOMEM.
 */
int llfree_prepare(unsigned int zones, u64 bytes)
{
	if (!header || used + bytes > header->total_bytes ||
	    header->zones + zones > LLFREE_MAX_ZONES)
		return -ENOMEM;
	added_zones = kvcalloc(zones, sizeof(*added_zones), GFP_KERNEL);
	return added_zones ? 0 : -ENOMEM;
}

static void warn_of_no_files(const char *name, int error)
{
	pr_warn("llfree: no files in sysfs for %s: error %d\n", name, error);
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
			 used + llfree_zone_bytes(pages) > header->total_bytes))
		return -EINVAL;
	description = &header->zone[header->zones];
	description->start_page = start_pfn;
	description->areas = DIV_ROUND_UP(pages, LLFREE_AREA_PAGES);
	description->offset = used;
	strscpy(description->name, name);
	used += llfree_zone_bytes(pages);

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
 * It is one of those that llfree_prepare() has made room for.
 */
void llfree_add_zone(struct zone *zone, unsigned long start_pfn,
		     unsigned long pages, const char *name)
{
	struct llfree_kernel_zone *kernel_zone = added_zones++;
	int rc;

	if (llfree_attach_zone(kernel_zone, zone, start_pfn, pages, name))
		return;
	rc = llfree_create_zone_files(kernel_zone);
	if (rc)
		warn_of_no_files(name, rc);
}

/**
 * __llfree_veto_kexec() - nobody starts another kernel from this one
 *
 * The host would go on working on its memory.
 */
bool __llfree_veto_kexec(void)
{
	pr_info("llfree: no kexec: the host works on this kernel's memory\n");
	return true;
}

/* Does any zone of LLFree's have this page, or room for it? */
static bool has_room_for(unsigned long pfn)
{
	const struct llfree_description *zone = header->zone;

	for (; zone < header->zone + header->zones; zone++)
		if (pfn >= zone->start_page &&
		    pfn - zone->start_page < (u64)zone->areas * LLFREE_AREA_PAGES)
			return true;
	return false;
}

/*
 * With a shared partition, ZONE_MOVABLE is LLFree's, and would be the zone of all
 * memory that is added. But the state of a zone has the size that it had when the
 * zone got its first page, so other memory is refused, before anything has been
 * done with it. Memory is onlined in blocks, all of which is somebody's if the
 * first page is: slots of partitions are whole blocks.
 */
static int refuse_other_memory(struct notifier_block *block,
			       unsigned long action, void *data)
{
	const struct memory_notify *memory = data;

	if (action != MEM_PREPARE_ONLINE ||
	    !zone_is_llfree(&NODE_DATA(0)->node_zones[ZONE_MOVABLE]) ||
	    has_room_for(memory->start_pfn))
		return NOTIFY_OK;
	pr_err_ratelimited("llfree: memory at %#llx stays offline: no zone has room for it\n",
			   PFN_PHYS(memory->start_pfn));
	return notifier_from_errno(-EINVAL);
}

/* Of zones that are older than sysfs. */
static int __init create_files(void)
{
	struct zone *zone;
	int rc;

	if (!header)
		return 0;
	hotplug_memory_notifier(refuse_other_memory, DEFAULT_CALLBACK_PRI);
	rc = llfree_create_files(virt_to_phys(header), header->total_bytes);
	if (rc)
		warn_of_no_files("anything", rc);
	for_each_zone(zone) {
		if (!zone_is_llfree(zone))
			continue;
		rc = llfree_create_zone_files(llfree_kernel_zone(zone));
		if (rc)
			warn_of_no_files(zone->name, rc);
	}
	return 0;
}
subsys_initcall(create_files);
