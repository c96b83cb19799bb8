/* SPDX-License-Identifier: GPL-2.0 */
/* Memory that a test maps, fills and checks. */
#ifndef SQUEEZY_TEST_MEMORY_H
#define SQUEEZY_TEST_MEMORY_H

#include "harness.h"

#include <sys/mman.h>

#define KIB		1024ull
#define MIB		(1024 * KIB)
#define PAGE		4096ull
#define HUGE_PAGE	(2 * MIB)

/* An older musl does not know them. */
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

/* Fresh private anonymous memory. */
void *map_anon(u64 bytes);
/* The same, aligned to a huge page and advised MADV_HUGEPAGE. */
void *map_huge(u64 bytes);
/* Writes @seed and the offset into every page. */
void fill(void *start, u64 bytes, u64 seed);
/* Whether every page still holds what fill() wrote. */
bool filled(const void *start, u64 bytes, u64 seed);
/* Whether every byte is zero. */
bool all_zero(const void *start, u64 bytes);

#endif
