/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef _MM_SQUEEZY_ZONE_H
#define _MM_SQUEEZY_ZONE_H

#include "core.h"

void squeezy_keep_room_for_zones(unsigned int partitions, unsigned long pages,
				 unsigned long shared_pages);
int squeezy_prepare_zones(void);
void squeezy_init_shared_zone(void);
void squeezy_init_zone(struct squeezy_partition *p);
struct folio *squeezy_alloc_folio(struct squeezy_partition *p, gfp_t gfp,
				  unsigned int order);
void squeezy_flush_cpus(struct squeezy_partition *p);

/* While others allocate and free: as the zone's counters have it */
unsigned long squeezy_pages_available(struct squeezy_partition *p);

/* While nobody allocates: exact */
unsigned long squeezy_pages_used(struct squeezy_partition *p);
bool squeezy_is_empty(struct squeezy_partition *p);
void squeezy_watch(struct squeezy_partition *p);
void squeezy_unwatch(struct squeezy_partition *p);

/* While a frozen instance is in it */
void squeezy_let_host_discard(struct squeezy_partition *p);
bool squeezy_keep_host_from_discarding(struct squeezy_partition *p);
void squeezy_forget_doom(struct squeezy_partition *p);

/* While it is plugged and unplugged */
void squeezy_show(struct squeezy_partition *p);
void squeezy_hide(struct squeezy_partition *p);

#endif /* _MM_SQUEEZY_ZONE_H */
