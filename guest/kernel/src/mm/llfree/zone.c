// SPDX-License-Identifier: GPL-2.0-only
/*
 * Zones whose pages LLFree has, and where the host finds their state.
 *
 * llfree=partitions on the command line says that the private partitions of
 * mm/squeezy/ are such zones.
 */
#include <linux/delay.h>
#include <linux/gfp.h>
#include <linux/init.h>
#include <linux/io.h>
#include <linux/jiffies.h>
#include <linux/kobject.h>
#include <linux/mm.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>
#include <linux/sysfs.h>
#include <linux/vmstat.h>

#include "llfree.h"
#include "zone.h"

DEFINE_STATIC_KEY_FALSE(llfree_key);

/* How long who needs memory waits for the host to give back what it has in hand. */
#define HOST_JIFFIES	HZ

static bool wants_partitions __ro_after_init;

/* In memory of its own: the host maps nothing else. */
static struct llfree_header *header;
/* Bytes of it that are in use. */
static u64 used;

static int __init parse(char *text)
{
	if (!text || strcmp(text, "partitions")) {
		pr_err("llfree: llfree= is not understood: it can be `partitions'\n");
		return 0;
	}
	wants_partitions = true;
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

static ssize_t state_show(struct kobject *kobj, struct kobj_attribute *attr,
			  char *buf)
{
	return sysfs_emit(buf, "%#llx %llu\n", (u64)virt_to_phys(header),
			  header->total_bytes);
}

static struct kobj_attribute state_attribute = __ATTR_RO_MODE(state, 0400);

/* Where the state is, and how many bytes. */
static int create_file(void)
{
	struct kobject *directory = kobject_create_and_add("llfree", mm_kobj);

	return directory ? sysfs_create_file(directory, &state_attribute.attr) :
			   -ENOMEM;
}

/**
 * llfree_prepare() - make room for the state of zones
 * @zones: how many
 * @pages: of each of them
 *
 * Return: 0, or -ENOMEM.
 */
int llfree_prepare(unsigned int zones, unsigned long pages)
{
	const u32 areas = DIV_ROUND_UP(pages, LLFREE_AREA_PAGES);
	const u64 first = ALIGN(sizeof(*header), 64);
	const u64 bytes = PAGE_ALIGN(first + zones * llfree_state_bytes(areas));

	if (WARN_ON_ONCE(header || zones > LLFREE_MAX_ZONES))
		return -EINVAL;
	header = alloc_pages_exact(bytes, GFP_KERNEL | __GFP_ZERO | __GFP_NOWARN);
	if (!header)
		return -ENOMEM;
	header->magic = LLFREE_MAGIC;
	header->version = LLFREE_VERSION;
	header->header_bytes = sizeof(*header);
	header->total_bytes = bytes;
	header->page_shift = PAGE_SHIFT;
	used = first;
	if (create_file())
		pr_warn("llfree: no file in sysfs: out of memory\n");
	static_branch_enable(&llfree_key);
	return 0;
}

/**
 * llfree_add_zone() - have LLFree keep the pages of a zone
 * @zone: which has no pages yet
 * @start_pfn: of its first page, a multiple of LLFREE_TREE_PAGES
 * @pages: how many it may have
 * @name: for people
 *
 * All of them are allocated until they are freed. There has to be room for the
 * state, by llfree_prepare().
 *
 * Return: 0, or -ENOMEM.
 */
int llfree_add_zone(struct zone *zone, unsigned long start_pfn,
		    unsigned long pages, const char *name)
{
	const u32 areas = DIV_ROUND_UP(pages, LLFREE_AREA_PAGES);
	struct llfree_description *description;
	struct llfree_zone *view;

	if (WARN_ON_ONCE(!IS_ALIGNED(start_pfn, LLFREE_TREE_PAGES) ||
			 header->zones == LLFREE_MAX_ZONES ||
			 used + llfree_state_bytes(areas) > header->total_bytes))
		return -EINVAL;
	view = kzalloc(sizeof(*view), GFP_KERNEL);
	if (!view)
		return -ENOMEM;
	description = &header->zone[header->zones];
	description->start_page = start_pfn;
	description->areas = areas;
	description->offset = used;
	strscpy(description->name, name);
	used += llfree_state_bytes(areas);

	llfree_attach(view, header, description);
	llfree_init(view);
	zone->llfree = view;
	/* What is above, before the host may look at it. */
	virt_store_release(&header->zones, header->zones + 1);
	return 0;
}

/**
 * llfree_alloc() - allocate pages of a zone, as rmqueue() does
 * @zone: of LLFree's
 * @order: how many
 * @migratetype: what for
 *
 * Waits for nobody, the host included.
 */
struct page *llfree_alloc(struct zone *zone, unsigned int order,
			  int migratetype)
{
	struct llfree_zone *view = zone->llfree;
	enum llfree_type type = LLFREE_UNMOVABLE;
	bool evicted;
	long page;

	if (order >= LLFREE_AREA_ORDER)
		type = LLFREE_HUGE;
	else if (migratetype == MIGRATE_MOVABLE)
		type = LLFREE_MOVABLE;
	page = llfree_get(view, order, type, &evicted);
	if (page < 0)
		return NULL;
	mod_zone_page_state(zone, NR_FREE_PAGES, -(1L << order));
	return pfn_to_page(view->start_page + page);
}

/**
 * llfree_free() - free pages of a zone, as __free_one_page() does
 * @zone: of LLFree's
 * @pfn: the first
 * @order: how many
 *
 * A full barrier comes after the pages are free.
 */
void llfree_free(struct zone *zone, unsigned long pfn, unsigned int order)
{
	struct llfree_zone *view = zone->llfree;

	/* The page stays allocated: whoever has it may go on with it. */
	if (WARN_ONCE(llfree_put(view, pfn - view->start_page, order),
		      "llfree: pages of order %u at %#lx are freed that nobody has\n",
		      order, pfn))
		return;
	mod_zone_page_state(zone, NR_FREE_PAGES, 1L << order);
}

/**
 * llfree_alloc_page() - allocate a page if it is free
 * @zone: of LLFree's
 * @pfn: the page
 */
bool llfree_alloc_page(struct zone *zone, unsigned long pfn)
{
	struct llfree_zone *view = zone->llfree;

	if (!llfree_get_page(view, pfn - view->start_page))
		return false;
	mod_zone_page_state(zone, NR_FREE_PAGES, -1);
	return true;
}

/**
 * llfree_has_page() - whether a page is free, as is_free_buddy_page() says
 * @zone: of LLFree's
 * @pfn: the page
 */
bool llfree_has_page(const struct zone *zone, unsigned long pfn)
{
	const struct llfree_zone *view = zone->llfree;

	return llfree_is_free(view, pfn - view->start_page);
}

/**
 * llfree_zone_unused_pages() - pages that nobody in the guest has
 * @zone: of LLFree's, from which nobody allocates
 */
unsigned long llfree_zone_unused_pages(const struct zone *zone)
{
	return llfree_unused_pages(zone->llfree);
}

/**
 * llfree_wait_for_host() - wait until the host has nothing in hand
 * @zone: of LLFree's
 *
 * Not for ever: it may have been killed, or be stopped. Sleeps.
 *
 * Return: what llfree_host_interfered() wants to know.
 */
unsigned int llfree_wait_for_host(const struct zone *zone)
{
	const struct llfree_zone *view = zone->llfree;
	const unsigned long end = jiffies + HOST_JIFFIES;
	u32 epoch;

	might_sleep();
	/* Pairs with the host's exchange before it takes anything. */
	while ((epoch = virt_load_acquire(&view->live->epoch)) & 1) {
		if (fatal_signal_pending(current) || time_after(jiffies, end))
			break;
		usleep_range(50, 200);
	}
	return epoch;
}

/**
 * llfree_host_interfered() - may an allocation have failed because of the host?
 * @zone: of LLFree's
 * @epoch: what llfree_wait_for_host() returned before the allocation
 *
 * A host that had something in hand all the time is not waited for again.
 */
bool llfree_host_interfered(const struct zone *zone, unsigned int epoch)
{
	const struct llfree_zone *view = zone->llfree;

	/* As above. */
	return virt_load_acquire(&view->live->epoch) != epoch;
}
