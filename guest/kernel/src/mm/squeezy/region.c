// SPDX-License-Identifier: GPL-2.0-only
/*
 * How the region of the memory device is divided, and which page belongs to
 * which partition.
 */
#include <linux/init.h>
#include <linux/kernel.h>
#include <linux/math64.h>
#include <linux/memory.h>
#include <linux/memory_hotplug.h>
#include <linux/mm.h>
#include <linux/slab.h>

#include "../internal.h"
#include "partition.h"

DEFINE_STATIC_KEY_FALSE(squeezy_key);

/* Constant once squeezy_key is on. */
struct squeezy_layout squeezy_layout;
struct squeezy_partition *squeezy_partitions[SQUEEZY_MAX_PARTITIONS + 1];

static struct squeezy_request squeezy_request;
static const char *squeezy_bad_parameter;
static bool squeezy_setup_done;

static int __init squeezy_parse_size(char *text, const char *name, u64 *size)
{
	char *end = NULL;

	*size = text ? memparse(text, &end) : 0;
	if (!text || end == text || *end)
		squeezy_bad_parameter = name;
	return 0;
}

static int __init squeezy_parse_partition_size(char *text)
{
	return squeezy_parse_size(text, "squeezy.partition_size",
				  &squeezy_request.partition_size);
}
early_param("squeezy.partition_size", squeezy_parse_partition_size);

static int __init squeezy_parse_shared_size(char *text)
{
	return squeezy_parse_size(text, "squeezy.shared_size",
				  &squeezy_request.shared_size);
}
early_param("squeezy.shared_size", squeezy_parse_shared_size);

static int __init squeezy_parse_partitions(char *text)
{
	if (!text || kstrtouint(text, 0, &squeezy_request.nr))
		squeezy_bad_parameter = "squeezy.partitions";
	return 0;
}
early_param("squeezy.partitions", squeezy_parse_partitions);

static int __init squeezy_parse_background_reporting(char *text)
{
	if (!text || kstrtobool(text, &squeezy_request.background_reporting))
		squeezy_bad_parameter = "squeezy.background_reporting";
	return 0;
}
early_param("squeezy.background_reporting", squeezy_parse_background_reporting);

/**
 * squeezy_make_layout - divide a region
 * @request: what the command line asks for
 * @addr: physical start of the region
 * @size: bytes of the region
 * @block_size: bytes that the device plugs and unplugs as one
 * @memory_block_size: bytes that Linux adds and onlines as one
 * @layout: where to put the result
 * @why: where to put the reason if it cannot be done
 *
 * Return: 0, or -EINVAL.
 */
int squeezy_make_layout(const struct squeezy_request *request, u64 addr,
			u64 size, u64 block_size, u64 memory_block_size,
			struct squeezy_layout *layout, const char **why)
{
	const u64 unit = max_t(u64, block_size, MAX_ORDER_NR_PAGES * PAGE_SIZE);
	const u64 limit = 1ULL << 46;
	u64 partition, shared, slot, start;

	*why = NULL;
	if (!request->nr || request->nr > SQUEEZY_MAX_PARTITIONS)
		*why = "squeezy.partitions is not between 1 and 255";
	else if (!request->partition_size || request->partition_size > limit)
		*why = "squeezy.partition_size is missing or out of range";
	else if (request->shared_size > limit)
		*why = "squeezy.shared_size is out of range";
	else if (!is_power_of_2(unit) || unit > memory_block_size)
		*why = "the device's block size is larger than a memory block";
	if (*why)
		return -EINVAL;

	partition = round_up(request->partition_size, unit);
	shared = round_up(request->shared_size, unit);
	slot = round_up(partition, memory_block_size);
	start = round_up(addr, memory_block_size) +
		round_up(shared, memory_block_size);

	/* The number of blocks in a request to the device has 16 bits. */
	if (div64_u64(partition, block_size) > U16_MAX)
		*why = "squeezy.partition_size is more than one request can plug";
	else if (start < addr || start > addr + size ||
		 slot * request->nr > addr + size - start)
		*why = "the memory device's region is too small";
	if (*why)
		return -EINVAL;

	layout->partition_pages = PHYS_PFN(partition);
	layout->slot_pages = PHYS_PFN(slot);
	layout->shared_pages = PHYS_PFN(shared);
	layout->first_pfn = PHYS_PFN(start);
	layout->nr = request->nr;
	layout->run = partition == slot ?
		      div64_u64(U16_MAX, div64_u64(partition, block_size)) : 1;
	return 0;
}

/* The partition whose slot @pfn is in, or NULL. */
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

/* The partition that @folio lies in, or NULL. */
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
	u64 shared;

	if (p)
		return &p->zone;
	if (!squeezy_enabled() || pfn >= squeezy_layout.first_pfn)
		return NULL;
	shared = round_up(PFN_PHYS(squeezy_layout.shared_pages),
			  memory_block_size_bytes());
	if (squeezy_layout.first_pfn - pfn > PHYS_PFN(shared))
		return NULL;
	return &NODE_DATA(0)->node_zones[ZONE_MOVABLE];
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
 * __squeezy_free_pages - free pages that ordinary allocations cannot get
 */
unsigned long __squeezy_free_pages(void)
{
	struct squeezy_partition *p;
	unsigned long pages = 0;

	squeezy_for_each_partition(p)
		pages += zone_page_state(&p->zone, NR_FREE_PAGES);
	return pages;
}

/**
 * __squeezy_online_page - put pages of a new partition on its free lists
 * @page: the first of them
 * @order: how many
 *
 * What lies between the end of a partition and the end of its slot was not
 * plugged: it stays PageOffline.
 *
 * Return: true if the pages are in a partition's slot.
 */
bool __squeezy_online_page(struct page *page, unsigned int order)
{
	const unsigned long start = page_to_pfn(page);
	struct squeezy_partition *p = squeezy_pfn_partition(start);

	if (!p)
		return false;

	/* Sizes are multiples of MAX_ORDER_NR_PAGES: no page straddles one. */
	if (start < p->start_pfn + squeezy_layout.partition_pages)
		free_partition_core(page, order);
	return true;
}

/**
 * __squeezy_veto_reporting - is Linux not to report free pages by itself?
 *
 * The device is there for squeezy_report(). All other memory stays as it would
 * be without one, unless the command line asks for more.
 */
bool __squeezy_veto_reporting(void)
{
	return !squeezy_request.background_reporting;
}

static void squeezy_init_partition(struct squeezy_partition *p,
				   unsigned int number)
{
	p->number = number;
	p->start_pfn = squeezy_layout.first_pfn +
		       number * squeezy_layout.slot_pages;
	spin_lock_init(&p->lock);
	mutex_init(&p->reclaim_lock);
	ratelimit_state_init(&p->oom_log, DEFAULT_RATELIMIT_INTERVAL,
			     DEFAULT_RATELIMIT_BURST);
	p->state = SQUEEZY_ABSENT;
	partition_zone_init(&p->zone, 0, number + 1);
	p->zonelist._zonerefs[0].zone = &p->zone;
	p->zonelist._zonerefs[0].zone_idx = ZONE_MOVABLE;
}

static int squeezy_alloc_partitions(void)
{
	unsigned int i;

	for (i = 0; i < squeezy_layout.nr; i++) {
		squeezy_partitions[i] = kzalloc(sizeof(*squeezy_partitions[i]),
						GFP_KERNEL);
		if (!squeezy_partitions[i])
			goto out_free;
		squeezy_init_partition(squeezy_partitions[i], i);
	}
	return 0;

out_free:
	while (i--) {
		kfree(squeezy_partitions[i]);
		squeezy_partitions[i] = NULL;
	}
	return -ENOMEM;
}

/**
 * squeezy_setup - set up the partitions the command line asks for
 * @addr: physical start of the memory device's region
 * @size: bytes of the region
 * @block_size: bytes that the device plugs and unplugs as one
 *
 * Return: true if partitions are in use from now on.
 */
bool squeezy_setup(u64 addr, u64 size, u64 block_size)
{
	const char *why = NULL;

	if (squeezy_setup_done)
		return false;
	squeezy_setup_done = true;

	if (squeezy_bad_parameter)
		why = squeezy_bad_parameter;
	else if (!squeezy_request.nr && !squeezy_request.partition_size)
		return false;
	else if (page_poisoning_enabled_static())
		/* It takes what the host gave back for corruption. */
		why = "page_poison=1 is on";

	if (why || squeezy_make_layout(&squeezy_request, addr, size, block_size,
				       memory_block_size_bytes(),
				       &squeezy_layout, &why) ||
	    squeezy_alloc_partitions()) {
		pr_err("squeezy: booting without partitions: %s%s\n",
		       why ?: "out of memory",
		       why == squeezy_bad_parameter && why ?
				" is not understood" : "");
		squeezy_layout.nr = 0;
		return false;
	}

	/* What we add has to be usable at once. */
	if (mhp_get_default_online_type() == MMOP_OFFLINE)
		mhp_set_default_online_type(MMOP_ONLINE_MOVABLE);

	squeezy_init_shared();
	static_branch_enable(&squeezy_key);
	squeezy_memmap_reserve();
	if (squeezy_sysfs_init())
		pr_warn("squeezy: no files in sysfs: out of memory\n");
	pr_info("squeezy: %u partitions of %lu KiB from %#llx, %lu KiB shared\n",
		squeezy_layout.nr,
		squeezy_layout.partition_pages << (PAGE_SHIFT - 10),
		PFN_PHYS(squeezy_layout.first_pfn),
		squeezy_layout.shared_pages << (PAGE_SHIFT - 10));
	return true;
}

/* Parameters without a device deserve a word, too. */
static int __init squeezy_check_device(void)
{
	if (!squeezy_enabled() && squeezy_request.nr &&
	    !squeezy_setup_done)
		pr_err("squeezy: booting without partitions: there is no virtio-mem device\n");
	return 0;
}
late_initcall(squeezy_check_device);
