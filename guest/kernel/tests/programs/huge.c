// SPDX-License-Identifier: GPL-2.0
/* Confinement of huge pages, and of small ones that become huge, whoever has that done. */
#define _GNU_SOURCE
#include "actor.h"
#include "harness.h"
#include "khugepaged.h"
#include "memory.h"
#include "pages.h"
#include "squeezy.h"
#include "system.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#define THP	"/sys/kernel/mm/transparent_hugepage/"

TEST_INSIDE(huge_pages)
{
	char *memory = map_huge(16 * MIB);

	fill(memory, 16 * MIB, 1);
	ASSERT_GE(huge_bytes(), 8 * MIB);
	assert_range_in(memory, 16 * MIB, own_partition());
	assert_confined(getpid(), 16 * MIB / PAGE);
}

TEST_INSIDE(middle_sized_pages)
{
	char *memory;

	if (!write_text(THP "hugepages-64kB/enabled", "madvise"))
		skip("no 64 KiB pages: %m");
	memory = map_huge(4 * MIB) + 64 * KIB;
	fill(memory, MIB, 1);
	write_text(THP "hugepages-64kB/enabled", "inherit");
	assert_range_in(memory, MIB, own_partition());
}

TEST_INSIDE(pages_collapsed_on_demand)
{
	char *memory = map_small(8 * MIB);

	fill(memory, 8 * MIB, 1);
	ASSERT_EQ(huge_bytes(), 0);
	OK(madvise(memory, 8 * MIB, MADV_HUGEPAGE));
	OK(madvise(memory, 8 * MIB, MADV_COLLAPSE));
	ASSERT_GE(huge_bytes(), 8 * MIB);
	ASSERT(filled(memory, 8 * MIB, 1), "lost");
	assert_range_in(memory, 8 * MIB, own_partition());
}

/* MADV_COLLAPSE from outside: the allocation is made by a process that is in no partition. */
ACTOR(lets_itself_be_collapsed)
{
	char *memory = map_small(8 * MIB);

	fill(memory, 8 * MIB, 1);
	OK(madvise(memory, 8 * MIB, MADV_HUGEPAGE));
	tell("%p", memory);
	hear();
	ASSERT_GE(huge_bytes(), 8 * MIB);
	assert_range_in(memory, 8 * MIB, own_partition());
}

TEST(pages_collapsed_by_another_process)
{
	struct actor actor;
	struct iovec range = { .iov_len = 8 * MIB };
	int pidfd;

	require_partitions();
	actor = actor_start(ANY, "lets_itself_be_collapsed", NULL);
	range.iov_base = (void *)strtoull(actor_hear(&actor), NULL, 0);
	pidfd = OK(syscall(SYS_pidfd_open, actor.pid, 0));
	ASSERT_EQ(syscall(SYS_process_madvise, pidfd, &range, 1, MADV_COLLAPSE, 0), 8 * MIB);
	actor_tell(&actor, "look");
	actor_join(&actor);
}

TEST_INSIDE(pages_collapsed_by_khugepaged)
{
	char *memory = map_small(8 * MIB);

	fill(memory, 8 * MIB, 1);
	assert_made_huge(memory, 8 * MIB);
	ASSERT(filled(memory, 8 * MIB, 1), "lost");
	assert_range_in(memory, 8 * MIB, own_partition());
}

/* A huge page has memory of the partition for them, too, and somebody has used that before. */
TEST_INSIDE(holes_filled_by_khugepaged)
{
	char *memory = map_small(8 * MIB), *used = map_anon(64 * MIB);
	u64 at;

	memset(used, 0xff, 64 * MIB);
	OK(munmap(used, 64 * MIB));
	for (at = 0; at < 8 * MIB; at += 4 * PAGE)
		memory[at] = 1;
	assert_made_huge(memory, 8 * MIB);
	for (at = 0; at < 8 * MIB; at += 4 * PAGE) {
		ASSERT(memory[at] == 1, "lost at %llu", at);
		ASSERT(all_zero(memory + at + PAGE, 3 * PAGE), "not zero after %llu", at);
	}
	assert_range_in(memory, 8 * MIB, own_partition());
}
