/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef _MM_SQUEEZY_FAILED_H
#define _MM_SQUEEZY_FAILED_H

#include "core.h"

#ifdef CONFIG_MEMORY_FAILURE
unsigned long squeezy_pages_failed(struct squeezy_partition *p);
void squeezy_renew_failed(struct squeezy_partition *p);
#else
static inline unsigned long squeezy_pages_failed(struct squeezy_partition *p)
{
	return 0;
}

static inline void squeezy_renew_failed(struct squeezy_partition *p)
{
}
#endif

#endif /* _MM_SQUEEZY_FAILED_H */
