// SPDX-License-Identifier: GPL-2.0-only
/*
 * Set partitions up: boot parameters, and the device that has the memory.
 */
#include <linux/init.h>
#include <linux/kernel.h>
#include <linux/memory.h>
#include <linux/memory_hotplug.h>
#include <linux/mm.h>
#include <linux/slab.h>

#include "../internal.h"
#include "core.h"
#include "device.h"
#include "layout.h"
#include "memmap.h"
#include "retry.h"
#include "shared.h"
#include "sysfs.h"
#include "zone.h"

static struct squeezy_parameters squeezy_parameters;
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
				  &squeezy_parameters.partition_size);
}
early_param("squeezy.partition_size", squeezy_parse_partition_size);

static int __init squeezy_parse_shared_size(char *text)
{
	return squeezy_parse_size(text, "squeezy.shared_size",
				  &squeezy_parameters.shared_size);
}
early_param("squeezy.shared_size", squeezy_parse_shared_size);

static int __init squeezy_parse_partitions(char *text)
{
	if (!text || kstrtouint(text, 0, &squeezy_parameters.nr))
		squeezy_bad_parameter = "squeezy.partitions";
	return 0;
}
early_param("squeezy.partitions", squeezy_parse_partitions);

static int __init squeezy_parse_background_reporting(char *text)
{
	if (!text || kstrtobool(text, &squeezy_parameters.background_reporting))
		squeezy_bad_parameter = "squeezy.background_reporting";
	return 0;
}
early_param("squeezy.background_reporting", squeezy_parse_background_reporting);

/**
 * __squeezy_veto_reporting - is Linux not to report free pages by itself?
 *
 * The device is there for squeezy_report_partition(). All other memory stays as
 * it would be without one, unless the command line asks for more.
 */
bool __squeezy_veto_reporting(void)
{
	return !squeezy_parameters.background_reporting;
}

/**
 * squeezy_early_init - keep memory for partitions, before there is an allocator
 *
 * The device, which is not known yet, has a say in their size: as much as
 * squeezy_make_layout() can make of it, but for a device with larger blocks than
 * those of the memory's own.
 */
void __init squeezy_early_init(void)
{
	const u64 size = squeezy_parameters.partition_size;
	const u64 shared_size = squeezy_parameters.shared_size;
	const u64 unit = memory_block_size_bytes();

	if (squeezy_parameters.nr > SQUEEZY_MAX_PARTITIONS ||
	    max(size, shared_size) > BIT_ULL(MAX_PHYSMEM_BITS))
		return;
	squeezy_keep_room_for_zones(squeezy_parameters.nr,
				    PHYS_PFN(round_up(size, unit)),
				    PHYS_PFN(round_up(shared_size, unit)));
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
	squeezy_init_zone(p);
}

/* Zones cannot be taken back, so they come when nothing can fail any more. */
static int squeezy_alloc_partitions(void)
{
	unsigned int i;

	for (i = 0; i < squeezy_layout.nr; i++) {
		squeezy_partitions[i] = kzalloc(sizeof(*squeezy_partitions[i]),
						GFP_KERNEL);
		if (!squeezy_partitions[i])
			goto out_free;
	}
	if (squeezy_prepare_zones())
		goto out_free;
	for (i = 0; i < squeezy_layout.nr; i++)
		squeezy_init_partition(squeezy_partitions[i], i);
	return 0;

out_free:
	while (i--) {
		kfree(squeezy_partitions[i]);
		squeezy_partitions[i] = NULL;
	}
	return -ENOMEM;
}

/*
 * Set up the partitions that the command line asks for, in the region of this
 * device. Returns true if they are in use from now on.
 */
static bool squeezy_setup(u64 addr, u64 size, u64 block_size)
{
	const char *why = NULL;

	if (squeezy_setup_done)
		return false;
	squeezy_setup_done = true;

	if (squeezy_bad_parameter)
		why = squeezy_bad_parameter;
	else if (!squeezy_parameters.nr && !squeezy_parameters.partition_size)
		return false;
	else if (page_poisoning_enabled_static())
		/* It takes what the host gave back for corruption. */
		why = "page_poison=1 is on";

	if (why || squeezy_make_layout(&squeezy_parameters, addr, size,
				       block_size, memory_block_size_bytes(),
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
	squeezy_init_shared_zone();
	static_branch_enable(&squeezy_key);
	squeezy_memmap_reserve();
	if (squeezy_init_sysfs())
		pr_warn("squeezy: no files in sysfs: out of memory\n");
	pr_info("squeezy: %u partitions of %lu KiB from %#llx, %lu KiB shared\n",
		squeezy_layout.nr,
		squeezy_layout.partition_pages << (PAGE_SHIFT - 10),
		PFN_PHYS(squeezy_layout.first_pfn),
		squeezy_layout.shared_pages << (PAGE_SHIFT - 10));
	return true;
}

/**
 * squeezy_register_device - offer a memory device's region for partitions
 * @ops: how to talk to its driver
 * @owner: the driver's own data
 * @addr: physical start of the region
 * @size: bytes of the region
 * @block_size: bytes that the device plugs and unplugs as one
 * @mgid: memory group that added memory belongs to
 *
 * Return: bytes of the region that are left to the driver: all of it unless
 * this is the first device and the command line asks for partitions.
 */
u64 squeezy_register_device(const struct squeezy_device_ops *ops, void *owner,
			    u64 addr, u64 size, u64 block_size, int mgid)
{
	u64 left = size;

	mutex_lock(&squeezy_mutex);
	if (!squeezy_enabled() && squeezy_setup(addr, size, block_size)) {
		squeezy_set_device(ops, owner, addr, mgid);
		left = PFN_PHYS(squeezy_layout.first_pfn) - addr;
	}
	mutex_unlock(&squeezy_mutex);
	return left;
}

/**
 * squeezy_unregister_device - the driver goes away
 * @owner: the driver's data, as registered
 *
 * Partitions that are plugged stay usable, but none can be plugged or unplugged
 * any more.
 */
void squeezy_unregister_device(void *owner)
{
	mutex_lock(&squeezy_mutex);
	if (squeezy_is_owner(owner)) {
		pr_warn("squeezy: the memory device is gone: partitions can no longer be resized\n");
		squeezy_clear_device();
	}
	mutex_unlock(&squeezy_mutex);
	squeezy_cancel_retry();
}

/* Parameters without a device deserve a word, too. */
static int __init squeezy_check_device(void)
{
	if (!squeezy_enabled() && squeezy_parameters.nr &&
	    !squeezy_setup_done)
		pr_err("squeezy: booting without partitions: there is no virtio-mem device\n");
	return 0;
}
late_initcall(squeezy_check_device);
