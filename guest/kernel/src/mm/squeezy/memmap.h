/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef _MM_SQUEEZY_MEMMAP_H
#define _MM_SQUEEZY_MEMMAP_H

#include <linux/types.h>

void squeezy_memmap_reserve(void);
bool squeezy_memmap_available(void);
void squeezy_memmap_begin(void);
void squeezy_memmap_end(void);

#endif /* _MM_SQUEEZY_MEMMAP_H */
