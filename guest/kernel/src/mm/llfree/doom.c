// SPDX-License-Identifier: GPL-2.0-only
/*
 * Letting the host discard all memory of a zone, what is allocated, too.
 *
 * It may while @doom in the zone's numbers is odd. It looks and discards only while
 * the guest stands still, and before it discards anything, it writes what it has
 * seen to @condemned. So whoever takes the permission back and looks there then
 * knows who was faster.
 *
 * Callers exclude each other.
 */
#include "llfree.h"

/**
 * llfree_doom() - allow the host to discard a zone
 * @zone: the zone
 */
void llfree_doom(struct llfree_zone *zone)
{
	struct llfree_live *live = zone->live;

	llfree_store(&live->doom, llfree_load(&live->doom) | 1);
}

/**
 * llfree_undoom() - take the permission back
 * @zone: the zone
 *
 * Return: false if the host has discarded the zone. Then nothing has changed.
 */
bool llfree_undoom(struct llfree_zone *zone)
{
	struct llfree_live *live = zone->live;
	const u32 doom = llfree_load(&live->doom);

	if (!(doom & 1))
		return true;
	/* The full barrier keeps the look at @condemned behind it. */
	llfree_cmpxchg(&live->doom, doom, doom + 1);
	if (llfree_load(&live->condemned) != doom)
		return true;
	llfree_store(&live->doom, doom);
	return false;
}

/**
 * llfree_forget_doom() - take the permission back whatever the host has done
 * @zone: the zone, of which nobody has anything any more
 */
void llfree_forget_doom(struct llfree_zone *zone)
{
	struct llfree_live *live = zone->live;
	const u32 doom = llfree_load(&live->doom);

	if (doom & 1)
		llfree_store(&live->doom, doom + 1);
}
