/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef _MM_SQUEEZY_LAYOUT_H
#define _MM_SQUEEZY_LAYOUT_H

#include <linux/types.h>

/**
 * struct squeezy_parameters - what the command line asks for
 * @partition_size: bytes of one private partition
 * @shared_size: bytes of the shared partition
 * @nr: number of private partitions
 * @background_reporting: whether Linux reports free pages by itself, too
 */
struct squeezy_parameters {
	u64 partition_size;
	u64 shared_size;
	unsigned int nr;
	bool background_reporting;
};

/**
 * struct squeezy_layout - how the device's region is divided
 * @partition_pages: pages of one private partition
 * @slot_pages: distance between two slots, whole memory blocks
 * @shared_pages: pages of the shared partition
 * @shared_slot_pages: the same rounded up to whole memory blocks, which end where
 *	slot 0 starts
 * @first_pfn: first page of slot 0
 * @nr: number of private partitions
 * @run: most partitions that one request to the device can be about; 1 where
 *	they have gaps between them
 */
struct squeezy_layout {
	unsigned long partition_pages;
	unsigned long slot_pages;
	unsigned long shared_pages;
	unsigned long shared_slot_pages;
	unsigned long first_pfn;
	unsigned int nr;
	unsigned int run;
};

int squeezy_make_layout(const struct squeezy_parameters *parameters, u64 addr,
			u64 size, u64 block_size, u64 memory_block_size,
			struct squeezy_layout *layout, const char **why);

#endif /* _MM_SQUEEZY_LAYOUT_H */
