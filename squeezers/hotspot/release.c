// SPDX-License-Identifier: Apache-2.0 OR MIT
#include "release.h"

#include <stdbool.h>
#include <sys/mman.h>
#include <unistd.h>

/* By address. They are few, or (G1) sorted already. */
static void sort(struct space *spaces, size_t count)
{
	for (size_t i = 1; i < count; i++) {
		struct space space = spaces[i];
		size_t at = i;

		for (; at > 0 && spaces[at - 1].bottom > space.bottom; at--)
			spaces[at] = spaces[at - 1];
		spaces[at] = space;
	}
}

/* Every space within the heap, its top within it, and no two of them overlap. */
static bool plausible(const struct heap *heap, const struct space *spaces, size_t count)
{
	const char *floor = heap->start;

	for (size_t i = 0; i < count; i++) {
		const struct space *space = &spaces[i];

		if (space->bottom < floor || space->top < space->bottom || space->end < space->top ||
		    space->end > heap->end)
			return false;
		if (((uintptr_t)space->bottom | (uintptr_t)space->top | (uintptr_t)space->end) % sizeof(void *))
			return false;
		floor = space->end;
	}
	return count > 0;
}

static void give_back(uintptr_t start, uintptr_t end, struct release *release)
{
	if (start >= end || release->error)
		return;
	if (madvise((void *)start, end - start, MADV_DONTNEED))
		/* EINVAL: somebody has locked it. */
		release->error = "the kernel does not take the heap's memory back: is it locked with mlock?";
	else
		release->advised_bytes += end - start;
}

void release_free_memory(const struct collector *collector, const struct heap *heap, struct space *spaces,
			 struct release *release)
{
	const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
	size_t count = collector->spaces(heap, spaces);
	/* Neighbours become one range: a heap of free regions is one system call. */
	uintptr_t start = 0, end = 0;

	*release = (struct release){0};
	sort(spaces, count);
	if (!plausible(heap, spaces, count)) {
		release->error = "the heap does not look as this squeezer knows it: nothing was given back";
		return;
	}
	for (size_t i = 0; i < count; i++) {
		uintptr_t from = ((uintptr_t)spaces[i].top + page - 1) & ~(page - 1);
		uintptr_t to = (uintptr_t)spaces[i].end & ~(page - 1);

		release->live_bytes += (uint64_t)(spaces[i].top - spaces[i].bottom);
		if (from != end) {
			give_back(start, end, release);
			start = from;
		}
		end = to;
	}
	give_back(start, end, release);
}
