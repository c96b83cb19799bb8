// SPDX-License-Identifier: GPL-2.0
/*
 * With llfree=all and kernelcore=: memory that is movable from the start is Linux's, and so is the
 * shared partition, which is of the same zone.
 */
#include "harness.h"
#include "pages.h"
#include "squeezy.h"
#include "system.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#define ZONES "/sys/kernel/mm/llfree/zones/"

/* Whether a memory block that the kernel has booted with is in ZONE_MOVABLE. */
static bool has_movable_memory(void)
{
	const u64 bytes = memory_block_bytes();
	u64 number;

	for (number = 0; number * bytes < partition_start(0); number++) {
		char path[128], zone[32];

		snprintf(path, sizeof(path), "/sys/devices/system/memory/memory%llu/valid_zones",
			 number);
		if (place_of(number * bytes / PAGE) == IN_ORDINARY &&
		    read_text(path, zone, sizeof(zone)) && !strcmp(zone, "Movable"))
			return true;
	}
	return false;
}

TEST(movable_memory_is_linuxs)
{
	require_partitions();
	ASSERT(has_movable_memory(), "kernelcore= has made nothing movable");
	ASSERT(!access(ZONES "DMA32", F_OK), "LLFree has no ZONE_DMA32: %m");
	ASSERT(access(ZONES "Movable", F_OK) && errno == ENOENT, "LLFree has ZONE_MOVABLE: %m");
}

TEST(the_shared_partition_is_linuxs)
{
	require_partitions();
	ASSERT(!access(ZONES "partition0", F_OK), "LLFree has no partition: %m");
	ASSERT(access(ZONES "shared", F_OK) && errno == ENOENT,
	       "LLFree has the shared partition: %m");
}
