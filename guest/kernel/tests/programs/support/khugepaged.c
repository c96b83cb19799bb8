// SPDX-License-Identifier: GPL-2.0
/* See khugepaged.h. */
#define _GNU_SOURCE
#include "khugepaged.h"
#include "memory.h"
#include "system.h"

#include <sys/mman.h>

#define SETTINGS	"/sys/kernel/mm/transparent_hugepage/khugepaged/"

#define HUGE_MS		50000

char *map_small(u64 bytes)
{
	char *memory = map_huge(bytes);

	OK(madvise(memory, bytes, MADV_NOHUGEPAGE));
	return memory;
}

u64 huge_bytes(void)
{
	return read_field("/proc/self/smaps_rollup", "AnonHugePages") * KIB;
}

static void set(const char *path, const char *value)
{
	ASSERT(write_text(path, value), "%s: %m", path);
}

/* What nobody uses is left alone: of each huge page, the first small one is used. */
static bool is_huge_when_used(const volatile char *memory, u64 bytes)
{
	u64 at;

	for (at = 0; at < bytes; at += HUGE_PAGE)
		(void)memory[at];
	return huge_bytes() >= bytes;
}

void assert_made_huge(char *memory, u64 bytes)
{
	const u64 before = read_field("/proc/vmstat", "thp_collapse_alloc");
	bool huge;

	set(SETTINGS "pages_to_scan", "65536");
	set(SETTINGS "alloc_sleep_millisecs", "1");
	set(SETTINGS "scan_sleep_millisecs", "1");
	OK(madvise(memory, bytes, MADV_HUGEPAGE));
	huge = WAIT_FOR(is_huge_when_used(memory, bytes), HUGE_MS);
	set(SETTINGS "scan_sleep_millisecs", "10000");
	set(SETTINGS "alloc_sleep_millisecs", "60000");
	set(SETTINGS "pages_to_scan", "4096");
	ASSERT(huge, "%llu of %llu bytes are huge, %llu allocations have failed", huge_bytes(),
	       bytes, read_field("/proc/vmstat", "thp_collapse_alloc_failed"));
	ASSERT_GE(read_field("/proc/vmstat", "thp_collapse_alloc"), before + bytes / HUGE_PAGE);
}
