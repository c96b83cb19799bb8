// SPDX-License-Identifier: GPL-2.0-only
/*
 * How the region of the memory device is divided.
 */
#include <linux/kernel.h>
#include <linux/log2.h>
#include <linux/math64.h>
#include <linux/mmzone.h>
#include <linux/pfn.h>
#include <uapi/linux/squeezy.h>

#include "layout.h"

/**
 * squeezy_make_layout - divide a region
 * @parameters: what the command line asks for
 * @addr: physical start of the region
 * @size: bytes of the region
 * @block_size: bytes that the device plugs and unplugs as one
 * @memory_block_size: bytes that Linux adds and onlines as one
 * @layout: where to put the result
 * @why: where to put the reason if it cannot be done
 *
 * Return: 0, or -EINVAL.
 */
int squeezy_make_layout(const struct squeezy_parameters *parameters, u64 addr,
			u64 size, u64 block_size, u64 memory_block_size,
			struct squeezy_layout *layout, const char **why)
{
	const u64 unit = max_t(u64, block_size, MAX_ORDER_NR_PAGES * PAGE_SIZE);
	const u64 limit = 1ULL << 46;
	u64 partition, shared, slot, shared_slot, start;

	*why = NULL;
	if (!parameters->nr || parameters->nr > SQUEEZY_MAX_PARTITIONS)
		*why = "squeezy.partitions is not between 1 and 255";
	else if (!parameters->partition_size ||
		 parameters->partition_size > limit)
		*why = "squeezy.partition_size is missing or out of range";
	else if (parameters->shared_size > limit)
		*why = "squeezy.shared_size is out of range";
	else if (!is_power_of_2(unit) || unit > memory_block_size)
		*why = "the device's block size is larger than a memory block";
	if (*why)
		return -EINVAL;

	partition = round_up(parameters->partition_size, unit);
	shared = round_up(parameters->shared_size, unit);
	slot = round_up(partition, memory_block_size);
	shared_slot = round_up(shared, memory_block_size);
	start = round_up(addr, memory_block_size) + shared_slot;

	/* The number of blocks in a request to the device has 16 bits. */
	if (div64_u64(partition, block_size) > U16_MAX)
		*why = "squeezy.partition_size is more than one request can plug";
	else if (start < addr || start > addr + size ||
		 slot * parameters->nr > addr + size - start)
		*why = "the memory device's region is too small";
	if (*why)
		return -EINVAL;

	layout->partition_pages = PHYS_PFN(partition);
	layout->slot_pages = PHYS_PFN(slot);
	layout->shared_pages = PHYS_PFN(shared);
	layout->shared_slot_pages = PHYS_PFN(shared_slot);
	layout->first_pfn = PHYS_PFN(start);
	layout->nr = parameters->nr;
	layout->run = partition == slot ?
		      div64_u64(U16_MAX, div64_u64(partition, block_size)) : 1;
	return 0;
}
