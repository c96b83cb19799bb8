// SPDX-License-Identifier: GPL-2.0
/* See memory.h. */
#define _GNU_SOURCE
#include "memory.h"

void *map_anon(u64 bytes)
{
	void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	ASSERT(p != MAP_FAILED, "mmap of %llu bytes: %m", bytes);
	return p;
}

void *map_huge(u64 bytes)
{
	uintptr_t p = (uintptr_t)map_anon(bytes + HUGE_PAGE);

	p = (p + HUGE_PAGE - 1) & ~(HUGE_PAGE - 1);
	if (madvise((void *)p, bytes, MADV_HUGEPAGE))
		skip("no transparent huge pages: %m");
	return (void *)p;
}

void fill(void *start, u64 bytes, u64 seed)
{
	u64 at;

	for (at = 0; at < bytes; at += PAGE)
		*(u64 *)((char *)start + at) = seed + at;
}

bool filled(const void *start, u64 bytes, u64 seed)
{
	u64 at;

	for (at = 0; at < bytes; at += PAGE)
		if (*(u64 *)((char *)start + at) != seed + at)
			return false;
	return true;
}

bool all_zero(const void *start, u64 bytes)
{
	const u64 *p = start;
	u64 i;

	for (i = 0; i < bytes / sizeof(*p); i++)
		if (p[i])
			return false;
	return true;
}
