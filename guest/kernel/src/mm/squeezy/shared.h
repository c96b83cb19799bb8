/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef _MM_SQUEEZY_SHARED_H
#define _MM_SQUEEZY_SHARED_H

#include <linux/mmzone.h>

/* The zone of the shared partition. */
static inline struct zone *squeezy_shared_zone(void)
{
	return &NODE_DATA(0)->node_zones[ZONE_MOVABLE];
}

void squeezy_init_shared(void);

#endif /* _MM_SQUEEZY_SHARED_H */
