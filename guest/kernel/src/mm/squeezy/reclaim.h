/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef _MM_SQUEEZY_RECLAIM_H
#define _MM_SQUEEZY_RECLAIM_H

#include "core.h"

bool squeezy_reclaim(struct squeezy_partition *p);

#endif /* _MM_SQUEEZY_RECLAIM_H */
