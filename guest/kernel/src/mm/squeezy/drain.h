/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef _MM_SQUEEZY_DRAIN_H
#define _MM_SQUEEZY_DRAIN_H

#include "core.h"

bool squeezy_drain(struct squeezy_partition *p);
void squeezy_put(struct squeezy_partition *p);

#endif /* _MM_SQUEEZY_DRAIN_H */
