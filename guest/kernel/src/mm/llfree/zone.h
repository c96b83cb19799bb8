/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Zones of the kernel whose pages LLFree has.
 *
 * LAYERS, top to bottom: a file uses those below it
 *
 *  boot			memory for the state; zones that the kernel boots with
 *  setup			llfree= on the command line, the state that the host maps
 *  sysfs			/sys/kernel/mm/llfree
 *  wait			for what the host has
 *  zone  watermark		pages of a zone; how many are free
 *  counters
 *  llfree  put  compact	the allocator, which knows no zones of the kernel
 *  area
 *  state  blocks  doom
 *
 *  benchmark			beside all of them, for experiments
 */
#ifndef _MM_LLFREE_ZONE_H
#define _MM_LLFREE_ZONE_H

#include <linux/kobject.h>
#include <linux/llfree_hooks.h>
#include <linux/mmzone.h>

#include "llfree.h"

/**
 * struct llfree_kernel_zone - a zone of the kernel whose pages LLFree has
 * @view: what struct zone points to
 * @accounted: of the areas that the host says it keeps, those that
 *	NR_FREE_PAGES does without
 * @given_up: the host's epoch when it was waited for in vain
 * @hand: pages that the host had in hand or held when they were last counted
 * @hand_epoch: its epoch then
 * @hand_at: when, in jiffies
 * @emptiable: what llfree_emptiable() said
 * @emptiable_at: when, in jiffies
 * @blocks: what llfree_count_blocks() said
 * @blocks_until: until when that will do, in jiffies
 * @name: in the state, in sysfs and in tracepoints
 * @kobj: its directory in sysfs
 */
struct llfree_kernel_zone {
	struct llfree_zone view;
	u32 accounted;
	u32 given_up;
	u32 hand_epoch;
	u32 emptiable;
	unsigned long hand;
	unsigned long hand_at;
	unsigned long emptiable_at;
	unsigned long blocks[NR_PAGE_ORDERS];
	unsigned long blocks_until;
	char name[16];
	struct kobject kobj;
};

static inline struct llfree_kernel_zone *llfree_kernel_zone(const struct zone *zone)
{
	return container_of(zone->llfree, struct llfree_kernel_zone, view);
}

bool llfree_alloc_page(struct zone *zone, unsigned long pfn);
unsigned int llfree_wait_for_host(const struct zone *zone);
bool llfree_host_interfered(const struct zone *zone, unsigned int epoch);

#endif
