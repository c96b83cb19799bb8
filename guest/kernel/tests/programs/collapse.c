// SPDX-License-Identifier: GPL-2.0
/*
 * Small pages of the memory that the kernel has booted with become huge behind a process's back,
 * whoever has the free pages, and also when none of these are in one piece.
 */
#include "harness.h"
#include "khugepaged.h"
#include "llfree.h"
#include "memory.h"
#include "pieces.h"
#include "system.h"

#define BYTES	(16 * MIB)

static void make_huge(void *data __attribute__((unused)))
{
	char *memory = map_small(BYTES);

	fill(memory, BYTES, 1);
	assert_made_huge(memory, BYTES);
	ASSERT(filled(memory, BYTES, 1), "memory has changed");
}

static u64 free_bytes(void)
{
	return read_field("/proc/meminfo", "MemFree") * KIB;
}

TEST(small_pages_become_huge, .seconds = 120)
{
	const u64 before = free_bytes();

	in_child_ok(make_huge, NULL);
	/* Neither the small pages nor the huge ones are left. */
	ASSERT(WAIT_FOR(free_bytes() + BYTES / 2 >= before, PROMPT_MS),
	       "%llu bytes are free, %llu were", free_bytes(), before);
}

TEST(small_pages_become_huge_in_memory_in_pieces, .seconds = 300)
{
	const u64 moved = read_field("/proc/vmstat", "compact_isolated");
	char *memory = map_small(BYTES);
	struct actor pieces;

	if (on_free_lists())
		skip("the free lists have the memory, and there fewer can be had");
	fill(memory, BYTES, 1);
	pieces = in_pieces();
	assert_made_huge(memory, BYTES);
	ASSERT(filled(memory, BYTES, 1), "memory has changed");
	note("%llu pages moved", read_field("/proc/vmstat", "compact_isolated") - moved);
	ASSERT(actor_alive(&pieces), "who has half of the memory was killed");
	actor_kill(&pieces);
}
