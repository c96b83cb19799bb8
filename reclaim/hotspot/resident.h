// SPDX-License-Identifier: Apache-2.0 OR MIT
/* How much of the heap is in memory. */
#ifndef SQUEEZY_RESIDENT_H
#define SQUEEZY_RESIDENT_H

#include "collectors/collector.h"

#include <stdint.h>

/*
 * By mincore(), which is exact for anonymous memory: it looks at the page tables of this process. Pages
 * that are swapped out do not count. Zero if it cannot be known.
 */
uint64_t resident_bytes(const struct heap *heap);

#endif
