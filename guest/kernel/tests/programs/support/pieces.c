// SPDX-License-Identifier: GPL-2.0
/* See pieces.h. */
#define _GNU_SOURCE
#include "pieces.h"
#include "system.h"

#include <sys/mman.h>

static u64 available(void)
{
	return read_field("/proc/meminfo", "MemAvailable") * KIB;
}

/*
 * Leaves nearly half of the memory free, in single pages. What is free is asked again after each
 * step: page cache that goes meanwhile would leave more whole than the tests expect. So would
 * watermarks that mixed blocks raise for a while, which MemAvailable does not know about.
 */
static void break_into_pieces(bool go_on)
{
	u64 most, bytes, at;
	char *memory;

	ASSERT(write_text("/proc/sys/vm/watermark_boost_factor", "0"), "%m");
	drop_caches();
	most = available() / HUGE_PAGE * HUGE_PAGE;
	memory = map_anon(most);
	OK(madvise(memory, most, MADV_NOHUGEPAGE));
	for (bytes = 0; bytes < most && available() > LEFT_WHOLE; bytes += HUGE_PAGE)
		fill(memory + bytes, HUGE_PAGE, 5);
	for (at = 0; at < bytes; at += 2 * PAGE)
		OK(madvise(memory + at, PAGE, MADV_DONTNEED));
	tell("ready");
	/* All over its memory. */
	for (at = PAGE; go_on; at = (at + 1022 * PAGE) % bytes) {
		OK(madvise(memory + at, PAGE, MADV_DONTNEED));
		memory[at] = 5;
	}
	hear();
}

ACTOR(leaves_pieces)
{
	break_into_pieces(false);
}

ACTOR(leaves_pieces_and_goes_on)
{
	break_into_pieces(true);
}

static struct actor start(const char *name)
{
	struct actor actor = actor_start(NOBODY, name, NULL);

	actor_hear(&actor);
	return actor;
}

struct actor in_pieces(void)
{
	return start("leaves_pieces");
}

struct actor in_pieces_that_change(void)
{
	return start("leaves_pieces_and_goes_on");
}

u64 moved(void)
{
	return read_field("/proc/vmstat", "compact_isolated");
}
