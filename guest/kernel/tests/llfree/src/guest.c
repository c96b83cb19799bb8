// SPDX-License-Identifier: GPL-2.0-only
/* What the tests need of the guest's allocator beside its own functions. */
#include <stdlib.h>
#include "llfree.h"

/* Writes the header of a state with one zone, and makes a view of the zone. */
struct llfree_zone *llfree_test_zone(void *state, u64 bytes, u32 areas, bool init)
{
	struct llfree_zone *zone = malloc(sizeof(*zone));
	struct llfree_header *header = state;
	const u64 offset = ALIGN(sizeof(*header), 64);

	if (!zone || offset + llfree_state_bytes(areas) > bytes)
		abort();
	if (init) {
		header->magic = LLFREE_MAGIC;
		header->version = LLFREE_VERSION;
		header->header_bytes = sizeof(*header);
		header->total_bytes = bytes;
		header->page_shift = 12;
		header->zone[0] = (struct llfree_description) {
			.areas = areas,
			.offset = offset,
			.name = "test",
		};
		header->zones = 1;
	}
	llfree_attach(zone, state, &header->zone[0]);
	if (init)
		llfree_init(zone);
	return zone;
}

void llfree_test_forget(struct llfree_zone *zone)
{
	free(zone);
}

/* llfree_get(), which is inline. */
long llfree_test_get(struct llfree_zone *zone, unsigned int order, enum llfree_type type,
		     bool *evicted)
{
	return llfree_get(zone, order, type, evicted);
}
