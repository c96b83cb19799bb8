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
#include "zone.h"

#include <sys/param.h>

#define BYTES		(16 * MIB)
/* That of a huge page. */
#define HUGE_ORDER	9

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
	u64 before, whole, bytes, at;
	char *memory, *beside;
	struct actor pieces;

	if (on_free_lists())
		skip("the free lists have the memory, and there fewer can be had");
	pieces = in_pieces();
	before = moved();
	whole = free_blocks_bytes(HUGE_ORDER);
	/* More than there is without moving a page. A host may leave far more. */
	bytes = MIN(whole, free_bytes() / 4 / HUGE_PAGE * HUGE_PAGE) + LEFT_WHOLE;
	memory = map_small(bytes);
	beside = map_small(bytes);
	/* Each page has neighbours that stay, or what one huge page frees would do for the next. */
	for (at = 0; at < bytes; at += PAGE) {
		fill(memory + at, PAGE, 1 + at);
		fill(beside + at, PAGE, 1);
	}
	assert_made_huge(memory, bytes);
	ASSERT(filled(memory, bytes, 1), "memory has changed");
	note("%llu bytes, %llu were whole: %llu pages moved", bytes, whole, moved() - before);
	/* Beside a host, what it gives back may be enough. */
	if (!event_count("evicted_allocations"))
		ASSERT_GE(moved(), before + 1);
	ASSERT(actor_alive(&pieces), "who has half of the memory was killed");
	actor_kill(&pieces);
}
