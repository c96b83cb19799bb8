/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The allocator's state, which the host maps: version 1.
 *
 * It follows LLFree (Wrenger et al., USENIX ATC'23) and HyperAlloc (EuroSys'25),
 * with what the host needs to work on it by itself and to recover when it is
 * killed. docs/abi.md describes it for whoever writes a host.
 *
 * A zone is pages in a row. It has
 *  - a bit for each page: 1 means allocated;
 *  - an entry for each area, 512 pages: how many are free, or whose it is as a
 *    whole;
 *  - an entry for each tree, eight areas: how many pages are free, for what
 *    kind of allocation it is used, and which of its areas the host holds.
 *
 * Invariants, at any moment, whoever is in the middle of what:
 *  L1  What an entry counts is there. A tree's count is at most the sum of its
 *      areas'; an area's is at most the number of its 0 bits. Who allocates
 *      goes from tree to area to bits, who frees the other way.
 *  L2  ALLOCATED is set by who takes an area that is entirely free. Nobody else
 *      takes anything in it until the same one clears it. Its count is 0. The
 *      guest fills the bits while it is set; the host leaves them 0.
 *  L3  EVICTED means that the host has nothing behind any page of the area. It
 *      is set together with ALLOCATED, while the host holds it, or with a count
 *      of 512. Who takes the first page clears it in the same step.
 *  L4  A bit of HELD means that the host has taken the area's 512 pages out of
 *      the tree's count. It sets the bit in the step that takes them, and
 *      clears it in the step that puts them back. So a host that finds HELD
 *      set and the area's entry not ALLOCATED | EVICTED, knows that another one
 *      was killed before it took the area or after it gave it back, and puts
 *      the 512 pages back.
 *  L5  ISOLATED means that nobody takes the count of any page of the area. Who
 *      had taken it before may still be about to set its bits. The host sets
 *      it, and looks at the bits: as long as more of them are 0 than are
 *      counted, somebody is. When there are as many, those pages are nobody's,
 *      and stay so until it is cleared; the host discards them meanwhile.
 *      Nothing else changes, so a host that finds ISOLATED set by one that was
 *      killed clears it.
 *
 * The guest changes entries and bits with compare-and-exchange only. The host
 * does so to take; to put back it adds and subtracts, which cannot fail however
 * busy the guest is. Plain stores to shared words are those to struct
 * llfree_live, whose lines have one writer each, and those of the guest to
 * words of bits that are its own in whole.
 */
#ifndef _MM_LLFREE_STATE_H
#define _MM_LLFREE_STATE_H

#ifdef __KERNEL__
#include "platform.h"
#else
#include <platform.h>
#endif

#define LLFREE_MAGIC		0x31454552464c4c53ULL	/* "SLLFREE1" */
#define LLFREE_VERSION		1

#define LLFREE_AREA_ORDER	9
#define LLFREE_AREA_PAGES	512U
#define LLFREE_AREA_WORDS	8U
#define LLFREE_TREE_AREAS	8U
#define LLFREE_TREE_PAGES	(LLFREE_TREE_AREAS * LLFREE_AREA_PAGES)
#define LLFREE_MAX_ORDER	10
/* Partitions, and the zones of a node. */
#define LLFREE_MAX_ZONES	272

/* An area's entry. Other bits are 0. */
#define LLFREE_AREA_FREE	0x03ffU
#define LLFREE_ALLOCATED	0x0400U
#define LLFREE_EVICTED		0x0800U
#define LLFREE_ISOLATED		0x1000U
#define LLFREE_HOST		(LLFREE_ALLOCATED | LLFREE_EVICTED)

/* A tree's entry. */
#define LLFREE_TREE_FREE	0x0000ffffU
#define LLFREE_TREE_TYPE	0x00030000U
#define LLFREE_TREE_TYPE_SHIFT	16
#define LLFREE_TREE_RESERVED	0x00040000U
#define LLFREE_TREE_HELD	0x07f80000U
#define LLFREE_TREE_HELD_SHIFT	19
/*
 * The smallest order for which no area has a run, not counting areas that are free
 * as a whole or the host's, as far as is known; 0: not known. It is written before
 * the bits are looked at, and forgotten after bits are cleared.
 */
#define LLFREE_TREE_LACKS	0x78000000U
#define LLFREE_TREE_LACKS_SHIFT	27

/**
 * struct llfree_live - numbers of a zone that change, a line for each writer
 * @held: areas that the host keeps until it gives them back of its own accord;
 *	written by the host, before it discards what is in them
 * @epoch: odd while the host has anything in hand that it gives back at once;
 *	written by the host
 * @condemned: the @doom at which the host has discarded all memory of the zone;
 *	written by the host, before it does
 * @starved: allocations for which the guest was about to kill while @held was not
 *	0; written by the guest
 * @reserve: pages that the guest needs free to work; written by the guest
 * @want: areas that it would like to have back, when @starved changes; written by
 *	the guest
 * @doom: odd while the host may discard all memory of the zone, what is allocated,
 *	too, and another number after each time; written by the guest
 */
struct llfree_live {
	u32 held;
	u32 epoch;
	u32 condemned;
	u32 unused_host[13];
	u32 starved;
	u32 reserve;
	u32 want;
	u32 doom;
	u32 unused_guest[12];
};

/**
 * struct llfree_description - where a zone and its state are
 * @start_page: number of its first page, a multiple of LLFREE_TREE_PAGES
 * @areas: how many it has
 * @offset: of its state from the header in bytes, a multiple of 64. From there
 *	on, each part aligned to 64: struct llfree_live, u64 bits[@areas][8],
 *	u16 area[@areas], u32 tree[@areas / 8 rounded up].
 * @name: for people
 */
struct llfree_description {
	u64 start_page;
	u32 areas;
	u32 unused;
	u64 offset;
	char name[16];
};

/**
 * struct llfree_header - the start of the state
 * @magic: LLFREE_MAGIC
 * @version: LLFREE_VERSION; a host that knows another one leaves the state alone
 * @header_bytes: sizeof(struct llfree_header)
 * @total_bytes: of all of it, this header included
 * @zones: how many there are; written last
 * @page_shift: of a page's size
 * @zone: where they are; written once
 */
struct llfree_header {
	u64 magic;
	u32 version;
	u32 header_bytes;
	u64 total_bytes;
	u32 zones;
	u32 page_shift;
	struct llfree_description zone[LLFREE_MAX_ZONES];
};

#endif
