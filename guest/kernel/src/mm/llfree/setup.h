/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef _MM_LLFREE_SETUP_H
#define _MM_LLFREE_SETUP_H

#include "zone.h"

bool llfree_wants_partitions(void);
bool llfree_wants_boot_memory(void);

/* Before slab and the page allocator work. */
void llfree_keep_room(u64 bytes);
u64 llfree_header_bytes(void);
u64 llfree_zone_bytes(unsigned long pages);
void llfree_begin(void *memory, u64 bytes);
int llfree_attach_zone(struct llfree_kernel_zone *kernel_zone, struct zone *zone,
		       unsigned long start_pfn, unsigned long pages,
		       const char *name);

/* Afterwards. */
int llfree_prepare(unsigned int zones, u64 bytes);
void llfree_add_zone(struct zone *zone, unsigned long start_pfn,
		     unsigned long pages, const char *name);

#endif
