/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef _MM_SQUEEZY_BATCH_H
#define _MM_SQUEEZY_BATCH_H

#include <linux/list.h>
#include <linux/page_reporting.h>
#include <linux/scatterlist.h>
#include <linux/sizes.h>

#include "core.h"

/*
 * Bytes that are off the free lists for a report at a time, and with them the
 * time that a fault may have to wait for the host: some milliseconds.
 */
#define SQUEEZY_BATCH_BYTES	SZ_64M

/**
 * struct squeezy_batch - free blocks that the host is told about at once
 * @sgl: the blocks; adjacent ones are one entry
 * @nents: entries
 * @bytes: of all blocks
 * @isolated: the blocks; their order is in page_private()
 * @blocks: how many
 */
struct squeezy_batch {
	struct scatterlist sgl[PAGE_REPORTING_CAPACITY];
	unsigned int nents;
	unsigned int bytes;
	struct list_head isolated;
	unsigned int blocks;
};

/* For a report */
void squeezy_batch_init(struct squeezy_batch *batch);
bool squeezy_batch_add(struct squeezy_batch *batch, struct page *page,
		       unsigned int order);
void squeezy_isolate_batch(struct squeezy_partition *p,
			   struct squeezy_batch *batch, unsigned long *pfn,
			   unsigned int order);
void squeezy_put_batch_back(struct squeezy_partition *p,
			    struct squeezy_batch *batch);
void squeezy_put_reported_batch_back(struct squeezy_partition *p,
				     struct squeezy_batch *batch);

/* For an allocation */
unsigned int squeezy_wait_for_batch(struct squeezy_partition *p);
bool squeezy_batch_interfered(struct squeezy_partition *p,
			      unsigned int batches);

#endif /* _MM_SQUEEZY_BATCH_H */
