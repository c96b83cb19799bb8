// SPDX-License-Identifier: Apache-2.0 OR MIT
/* How much of the heap is in memory. */
#ifndef SQUEEZY_RESIDENT_H
#define SQUEEZY_RESIDENT_H

#include "collectors/collector.h"

#include <stdint.h>

/*
 * The pages of the heap that the page tables of this process have, by /proc/self/pagemap. mincore() would
 * also count pages of the archive that a heap may be mapped from, if only the page cache has them.
 * Zero if it cannot be known.
 */
uint64_t resident_bytes(const struct heap *heap);

#endif
