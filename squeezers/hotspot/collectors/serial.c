// SPDX-License-Identifier: Apache-2.0 OR MIT
/* Serial: eden, two survivor spaces and the old generation, each a ContiguousSpace. */
#include "collectors/collector.h"
#include "structs.h"

static size_t young, old, eden, from, to, tenured, bottom, top, end;

static bool prepare(void)
{
	/* Until JDK 21 the generations stand in GenCollectedHeap, which SerialHeap inherits from. */
	return structs_offset("SerialHeap", "_young_gen", &young) && structs_offset("SerialHeap", "_old_gen", &old) &&
	       structs_offset("DefNewGeneration", "_eden_space", &eden) &&
	       structs_offset("DefNewGeneration", "_from_space", &from) &&
	       structs_offset("DefNewGeneration", "_to_space", &to) &&
	       structs_offset("TenuredGeneration", "_the_space", &tenured) &&
	       structs_offset("ContiguousSpace", "_bottom", &bottom) &&
	       structs_offset("ContiguousSpace", "_top", &top) && structs_offset("ContiguousSpace", "_end", &end);
}

static size_t most_spaces(const struct heap *heap)
{
	(void)heap;
	return 4;
}

static size_t spaces(const struct heap *heap, struct space *result)
{
	const char *young_generation = STRUCTS_AT(const char *, heap->object, young);
	const char *old_generation = STRUCTS_AT(const char *, heap->object, old);
	const char *all[4];

	if (!young_generation || !old_generation)
		return 0;
	all[0] = STRUCTS_AT(const char *, young_generation, eden);
	all[1] = STRUCTS_AT(const char *, young_generation, from);
	all[2] = STRUCTS_AT(const char *, young_generation, to);
	all[3] = STRUCTS_AT(const char *, old_generation, tenured);
	for (int i = 0; i < 4; i++) {
		if (!all[i])
			return 0;
		result[i].bottom = STRUCTS_AT(char *, all[i], bottom);
		result[i].top = STRUCTS_AT(char *, all[i], top);
		result[i].end = STRUCTS_AT(char *, all[i], end);
	}
	return 4;
}

const struct collector collector_serial = {"serial", "UseSerialGC", prepare, most_spaces, spaces};
