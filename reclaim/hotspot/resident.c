// SPDX-License-Identifier: Apache-2.0 OR MIT
#include "resident.h"

#include <sys/mman.h>
#include <unistd.h>

/* One byte a page, on the stack: 16 KiB show 64 MiB of the heap. */
#define PAGES_AT_ONCE 16384

uint64_t resident_bytes(const struct heap *heap)
{
	const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
	unsigned char present[PAGES_AT_ONCE];
	uint64_t pages = 0;

	for (char *start = heap->start; start < heap->end; start += PAGES_AT_ONCE * page) {
		uintptr_t left = ((uintptr_t)(heap->end - start) + page - 1) / page;
		uintptr_t count = left < PAGES_AT_ONCE ? left : PAGES_AT_ONCE;

		if (mincore(start, count * page, present))
			return 0;
		for (uintptr_t i = 0; i < count; i++)
			pages += present[i] & 1;
	}
	return pages * page;
}
