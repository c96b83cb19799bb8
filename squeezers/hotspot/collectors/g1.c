// SPDX-License-Identifier: Apache-2.0 OR MIT
/*
 * G1: regions of one size, free ones among them (their top is their bottom). A region that was never
 * committed is not in the table; one that was uncommitted is, and is free.
 */
#include "collectors/collector.h"
#include "structs.h"

#include <stdint.h>

static size_t *region_bytes;
static size_t manager, table, base, length, bottom, top, end;

static bool prepare(void)
{
	size_t size;
	/* HeapRegion became G1HeapRegion with JDK 23. */
	bool renamed = structs_size("G1HeapRegion", &size);
	const char *region_type = renamed ? "G1HeapRegion" : "HeapRegion";
	const char *manager_type = renamed ? "G1HeapRegionManager" : "HeapRegionManager";

	region_bytes = structs_static(region_type, "GrainBytes");
	/* In JDK 11 the bounds stand in G1ContiguousSpace and Space, which HeapRegion inherits from. */
	return region_bytes && structs_offset("G1CollectedHeap", "_hrm", &manager) &&
	       structs_offset(manager_type, "_regions", &table) &&
	       structs_offset("G1HeapRegionTable", "_base", &base) &&
	       structs_offset("G1HeapRegionTable", "_length", &length) &&
	       structs_offset(region_type, "_bottom", &bottom) && structs_offset(region_type, "_top", &top) &&
	       structs_offset(region_type, "_end", &end);
}

static size_t most_spaces(const struct heap *heap)
{
	return *region_bytes ? (size_t)(heap->end - heap->start) / *region_bytes : 0;
}

static size_t spaces(const struct heap *heap, struct space *result)
{
	const char *regions = heap->object + manager + table;
	char **first = STRUCTS_AT(char **, regions, base);
	size_t count = 0;

	if (!first || STRUCTS_AT(size_t, regions, length) != most_spaces(heap))
		return 0;
	for (size_t i = 0; i < most_spaces(heap); i++) {
		struct space *space = &result[count];

		if (!first[i])
			continue;
		space->bottom = STRUCTS_AT(char *, first[i], bottom);
		space->top = STRUCTS_AT(char *, first[i], top);
		space->end = STRUCTS_AT(char *, first[i], end);
		if (space->bottom != heap->start + i * *region_bytes || space->end != space->bottom + *region_bytes)
			return 0;
		count++;
	}
	return count;
}

const struct collector collector_g1 = {"g1", "UseG1GC", prepare, most_spaces, spaces};
