// SPDX-License-Identifier: Apache-2.0 OR MIT
/*
 * Parallel: eden, two survivor spaces and the old generation, each a MutableSpace. When the young generation
 * is resized, gaps between its spaces stay behind that are committed and belong to none: up to half of it.
 */
#include "collectors/collector.h"
#include "structs.h"

static char **young, **old;
static size_t eden, from, to, object_space, bottom, top, end, young_memory, committed;

static bool prepare(void)
{
	young = structs_static("ParallelScavengeHeap", "_young_gen");
	old = structs_static("ParallelScavengeHeap", "_old_gen");
	/* In JDK 11 the bounds stand in ImmutableSpace, which MutableSpace inherits from. */
	return young && old && structs_offset("PSYoungGen", "_eden_space", &eden) &&
	       structs_offset("PSYoungGen", "_from_space", &from) && structs_offset("PSYoungGen", "_to_space", &to) &&
	       structs_offset("PSOldGen", "_object_space", &object_space) &&
	       structs_offset("MutableSpace", "_bottom", &bottom) && structs_offset("MutableSpace", "_top", &top) &&
	       structs_offset("MutableSpace", "_end", &end) &&
	       structs_offset("PSYoungGen", "_virtual_space", &young_memory) &&
	       structs_offset("PSVirtualSpace", "_committed_high_addr", &committed);
}

static size_t most_spaces(const struct heap *heap)
{
	(void)heap;
	return 4;
}

/* Counts the gap behind each of the young spaces to that space. False if they cannot be right. */
static bool close_gaps(struct space young_spaces[3])
{
	const char *memory = STRUCTS_AT(const char *, *young, young_memory);
	char *ends[3];

	if (!memory)
		return false;
	for (int i = 0; i < 3; i++) {
		ends[i] = STRUCTS_AT(char *, memory, committed);
		if (young_spaces[i].end > ends[i])
			return false;
		for (int j = 0; j < 3; j++)
			if (young_spaces[j].bottom >= young_spaces[i].end && young_spaces[j].bottom < ends[i])
				ends[i] = young_spaces[j].bottom;
	}
	for (int i = 0; i < 3; i++)
		young_spaces[i].end = ends[i];
	return true;
}

static size_t spaces(const struct heap *heap, struct space *result)
{
	const char *all[4];

	(void)heap;
	if (!*young || !*old)
		return 0;
	all[0] = STRUCTS_AT(const char *, *young, eden);
	all[1] = STRUCTS_AT(const char *, *young, from);
	all[2] = STRUCTS_AT(const char *, *young, to);
	all[3] = STRUCTS_AT(const char *, *old, object_space);
	for (int i = 0; i < 4; i++) {
		if (!all[i])
			return 0;
		result[i].bottom = STRUCTS_AT(char *, all[i], bottom);
		result[i].top = STRUCTS_AT(char *, all[i], top);
		result[i].end = STRUCTS_AT(char *, all[i], end);
	}
	return close_gaps(result) ? 4 : 0;
}

const struct collector collector_parallel = {"parallel", "UseParallelGC", prepare, most_spaces, spaces};
