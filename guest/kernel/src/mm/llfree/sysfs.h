/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef _MM_LLFREE_SYSFS_H
#define _MM_LLFREE_SYSFS_H

#include "zone.h"

int llfree_create_files(phys_addr_t state, u64 bytes);
int llfree_create_zone_files(struct llfree_kernel_zone *kernel_zone);

#endif
