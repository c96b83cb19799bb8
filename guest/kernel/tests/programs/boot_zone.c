// SPDX-License-Identifier: GPL-2.0
/*
 * With llfree=all: what the kernel says of the zones that it has booted with, what cannot be done
 * with their memory, and a page of it that fails.
 */
#define _GNU_SOURCE
#include "failed.h"
#include "harness.h"
#include "host.h"
#include "memory.h"
#include "pages.h"
#include "system.h"
#include "zone.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ZONES		"/sys/kernel/mm/llfree/zones/"

static const char *const names[] = { "DMA32", "Normal" };

TEST(llfree_has_all_zones_but_dma)
{
	struct zone zone;
	int i;

	ASSERT(read_zone("DMA", &zone), "there is no ZONE_DMA");
	ASSERT(access(ZONES "DMA", F_OK), "LLFree has ZONE_DMA");
	ASSERT(access(ZONES "Movable", F_OK), "LLFree has ZONE_MOVABLE");
	for (i = 0; i < 2; i++) {
		char path[128];

		snprintf(path, sizeof(path), ZONES "%s", names[i]);
		ASSERT(!read_zone(names[i], &zone) || !access(path, F_OK), "%s: %m", path);
	}
}

/* A page on such a list would keep the host from an area that is free otherwise. */
TEST(no_page_is_on_a_list_of_a_processor)
{
	struct zone zone;
	char *memory;
	int i;

	memory = map_anon(64 * MIB);
	fill(memory, 64 * MIB, 1);
	OK(munmap(memory, 64 * MIB));
	for (i = 0; i < 2; i++)
		if (read_zone(names[i], &zone))
			ASSERT_EQ(zone.on_lists, 0);
}

TEST(the_host_is_told_what_has_to_stay_free)
{
	struct zone zone;
	char path[128];
	int i;

	for (i = 0; i < 2; i++) {
		if (!read_zone(names[i], &zone))
			continue;
		snprintf(path, sizeof(path), ZONES "%s/reserve_bytes", names[i]);
		ASSERT_EQ(read_number(path), (zone.high - zone.boost + zone.protection) * PAGE);
	}
}

/* Physical start of a line of /proc/iomem. */
static u64 start_of(const char *what)
{
	FILE *file = fopen("/proc/iomem", "re");
	char line[256];
	u64 start = 0;

	ASSERT(file, "/proc/iomem: %m");
	while (!start && fgets(line, sizeof(line), file))
		if (strstr(line, what))
			start = strtoull(line, NULL, 16);
	fclose(file);
	ASSERT(start, "no %s", what);
	return start;
}

TEST(free_pages_are_called_free_and_no_others)
{
	char *memory = map_anon(MIB);
	u64 at, pfn;

	fill(memory, MIB, 1);
	for (at = 0; at < MIB; at += PAGE)
		ASSERT(!is_called_free(pfn_of(memory + at)), "used");
	pfn = start_of("Kernel code") / PAGE;
	ASSERT(!is_called_free(pfn), "the kernel itself");
	/* The state, which was never anybody's to free. */
	ASSERT(read_text("/sys/kernel/mm/llfree/state", memory, 64), "%m");
	pfn = strtoull(memory, NULL, 16) / PAGE;
	ASSERT(!is_called_free(pfn), "the state");
}

TEST(memory_is_not_isolated)
{
	const int log = kmsg_mark();
	struct zone zone;
	char path[128];

	ASSERT(read_zone(names[0], &zone), "no %s", names[0]);
	/*
	 * Its first whole memory block. The one before has a hole and pages of ZONE_DMA, so Linux
	 * itself refuses; further up the zone can have a hole, too.
	 */
	snprintf(path, sizeof(path), "/sys/devices/system/memory/memory%llu/state",
		 zone.start_pfn * PAGE / memory_block_bytes() + 1);
	ASSERT(!write_text(path, "offline"), "boot memory was taken offline");
	ASSERT_EQ(errno, EBUSY);
	ASSERT(kmsg_has(log, "llfree: pages of zone", "cannot be isolated"), "nothing is said");
}

/* Memory that comes later is Linux's, however it is onlined. */
TEST(memory_that_is_added_is_not_llfrees, .seconds = 120)
{
	const char *policy = "/sys/devices/system/memory/auto_online_blocks";
	struct zone before, after, movable;

	require_host();
	ASSERT(read_zone(names[0], &before), "no %s", names[0]);
	ASSERT(write_text(policy, "online_kernel"), "%m");
	host_resize(256 * MIB, 20000);
	ASSERT(WAIT_FOR(read_zone("Movable", &movable), PROMPT_MS), "nothing is in ZONE_MOVABLE");
	ASSERT(read_zone(names[0], &after), "no %s", names[0]);
	ASSERT_EQ(after.spanned, before.spanned);
	ASSERT(access(ZONES "Movable", F_OK), "LLFree has ZONE_MOVABLE");
	/* It can go again. */
	host_resize(0, 20000);
}

static void fills_most(void *data __attribute__((unused)))
{
	const u64 bytes = read_field("/proc/meminfo", "MemAvailable") * KIB - 64 * MIB;
	char *memory = map_anon(bytes);

	fill(memory, bytes, 7);
	ASSERT(filled(memory, bytes, 7), "memory has changed");
}

TEST(a_free_page_that_fails_is_nobodys_any_more, .seconds = 300)
{
	const u64 before = corrupted_bytes();
	const u64 pfn = free_page_in(names[0]), killed = oom_kills();

	have_fail(pfn, HARD_OFFLINE);
	ASSERT_EQ(corrupted_bytes(), before + PAGE);
	ASSERT(is_poisoned(pfn), "it is not marked");
	ASSERT(!is_called_free(pfn), "it is called free");
	in_child_ok(fills_most, NULL);
	ASSERT(is_poisoned(pfn), "it is not marked any more");
	ASSERT(!is_called_free(pfn), "it has been freed");
	ASSERT_EQ(oom_kills(), killed);
}
