// SPDX-License-Identifier: Apache-2.0 OR MIT
#include "resident.h"

#include <fcntl.h>
#include <unistd.h>

/* Entries of 8 bytes, on the stack: 32 KiB show 16 MiB of the heap. */
#define PAGES_AT_ONCE 4096
#define PRESENT (UINT64_C(1) << 63)

uint64_t resident_bytes(const struct heap *heap)
{
	const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
	uintptr_t first = (uintptr_t)heap->start / page, end = ((uintptr_t)heap->end + page - 1) / page;
	uint64_t entries[PAGES_AT_ONCE], pages = 0;
	int pagemap = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);

	if (pagemap < 0)
		return 0;
	while (first < end) {
		uintptr_t wanted = end - first < PAGES_AT_ONCE ? end - first : PAGES_AT_ONCE;
		ssize_t bytes = pread(pagemap, entries, wanted * sizeof(*entries), (off_t)(first * sizeof(*entries)));
		uintptr_t count = bytes > 0 ? (uintptr_t)bytes / sizeof(*entries) : 0;

		if (!count) {
			pages = 0;
			break;
		}
		for (uintptr_t i = 0; i < count; i++)
			pages += entries[i] >= PRESENT;
		first += count;
	}
	close(pagemap);
	return pages * page;
}
