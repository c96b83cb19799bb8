/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Private memory partitions.
 *
 * The region of the first virtio-mem device holds one shared partition and N
 * private ones. The shared partition is ordinary memory in ZONE_MOVABLE and is
 * left to the driver. Each private partition is a struct zone outside
 * pgdat->node_zones: no zonelist but its own leads to it, so kswapd, kcompactd
 * and the allocator's fallbacks never see it. Which one a page belongs to stands
 * in page->flags (SQUEEZY_WIDTH), and page_zone() looks there.
 *
 * A process is assigned with prctl(PR_SQUEEZY) and enters its partition with
 * the next execve; mm->squeezy never changes after mm_init(). All private
 * anonymous memory of such an mm comes from the partition, whoever faults, and
 * so do the pages of tmpfs files, memfds and shared anonymous memory that its
 * processes fill.
 *
 * LAYERS, top to bottom: a file uses those below it, none beside or above it
 *
 *  init		boot parameters; the driver offers its device
 *  sysfs		/sys/kernel/mm/squeezy
 *  resize		plug and unplug, as the driver asks for it
 *  report		free blocks of an assigned partition to the host
 *  doom		letting the host discard a partition with its instance
 *  alloc  attach	page faults; prctl, fork, execve and exit
 *  populate		the first plug, which adds memory
 *  run  drain		partitions that share a request; one without users
 *  retry		when to try again what has failed
 *  device		what the driver can do, and what it has read
 *  frozen		who is in an instance that is to be doomed
 *  oom  reclaim	a full partition
 *  zone  batch		a partition's pages; free ones on their way to the host
 *  page  failed	whose a page is; pages that failed while they were free
 *  memmap		memory for memory maps
 *  core		the state machine, and this file
 *  layout  counters	how the region is divided; what is counted
 *
 *  shared and charge are about memory that is in no private partition, and use
 *  none of these.
 *
 * What a page allocator of partitions would have to do is in zone.c, batch.c and
 * failed.c: nobody else knows where the free pages are.
 *
 * STATES
 *
 *  ABSENT -> POPULATING -> FREE -> ASSIGNED -> DRAINING -> FREE
 *  FREE -> UNPLUGGING -> UNPLUGGED -> PLUGGING -> FREE
 *  DRAINING <-> QUARANTINED
 *  POPULATING -> OWED -> ABSENT, OWED -> POPULATING
 *
 * Files outlive the last mm: exit takes the mount namespace down after the
 * memory, and truncates them. Until then the partition is DRAINING.
 *
 * LOCKS, outer to inner
 *
 *  squeezy_mutex		plug, unplug, populate and drain; online_pages
 *  page_offline_rwsem		by page_offline_begin()
 *  partition->lock		state and users; wake-ups
 *  zone->lock			is the zone empty? batches
 *
 *  partition->reclaim_lock, by who faults in a full partition, is taken around
 *  zone->lock and oom_lock, which is only tried, and with none of the others. It is
 *  held while a victim dies: who waits for it can be killed.
 *
 *  page_reporting_mutex, by page_reporting_claim(), is taken around zone->lock
 *  and with none of the others.
 *
 * INVARIANTS
 *
 *  I1 A page leaves the zone's free lists only in ASSIGNED: every allocation is
 *     for an mm that counts as a user and that somebody holds mm_users of, and
 *     it counts until mm_users is 0 and exit_mmap() is done. A report, which
 *     takes blocks off the lists and puts them back, is a user, too.
 *  I2 FREE is entered with every page free and without users. By I1 no page
 *     leaves the free lists after that, and so none is freed: the lists are
 *     frozen in FREE, UNPLUGGING, UNPLUGGED and PLUGGING. They live in the
 *     memory map, which stays, and plugging rebuilds nothing. Only
 *     memory_failure() takes a page off them, and unplugging puts it back, or
 *     unpoison_memory() in a kernel that is made for tests.
 *  I3 Assigning and unplugging both take FREE away under partition->lock, so
 *     exactly one of them wins.
 *  I4 execve counts the new mm before the old one is put, fork counts the
 *     child's before the parent's can go: users does not touch 0 in between.
 *  I5 Every entry to FREE and every change of the requested size makes the
 *     driver compare what is plugged with what is requested: no event is lost.
 *  I6 The device has plugged what is in any state but ABSENT and UNPLUGGED: a
 *     state is left for one of these only after the device has agreed. While a
 *     partition is OWED, the driver looks at it before it does anything else.
 *  I7 A block of memory that was added once is never removed: populating goes on
 *     where it has failed, and adds nothing twice.
 */
#ifndef _MM_SQUEEZY_CORE_H
#define _MM_SQUEEZY_CORE_H

#include <linux/atomic.h>
#include <linux/kobject.h>
#include <linux/mmzone.h>
#include <linux/mutex.h>
#include <linux/pfn.h>
#include <linux/ratelimit.h>
#include <linux/spinlock.h>
#include <linux/squeezy_hooks.h>
#include <uapi/linux/squeezy.h>

#include "layout.h"

/**
 * enum squeezy_state - where a partition stands in its life
 * @SQUEEZY_ABSENT: not plugged, and its memory map is not complete
 * @SQUEEZY_POPULATING: its memory is being added and onlined
 * @SQUEEZY_OWED: plugged, but there was no memory for its memory map: it has to
 *	go back to the device, or to be populated after all
 * @SQUEEZY_FREE: plugged, every page free, no users
 * @SQUEEZY_ASSIGNED: has users
 * @SQUEEZY_DRAINING: the last user is gone, perhaps not all pages are free
 * @SQUEEZY_QUARANTINED: as draining, but what is left cannot be moved
 * @SQUEEZY_UNPLUGGING: the request to take it is on its way to the device
 * @SQUEEZY_UNPLUGGED: given back; nothing may touch its memory
 * @SQUEEZY_PLUGGING: the request to bring it is on its way to the device
 */
enum squeezy_state {
	SQUEEZY_ABSENT,
	SQUEEZY_POPULATING,
	SQUEEZY_OWED,
	SQUEEZY_FREE,
	SQUEEZY_ASSIGNED,
	SQUEEZY_DRAINING,
	SQUEEZY_QUARANTINED,
	SQUEEZY_UNPLUGGING,
	SQUEEZY_UNPLUGGED,
	SQUEEZY_PLUGGING,
	SQUEEZY_NR_STATES
};

/**
 * struct squeezy_partition - one private partition
 * @number: its number, from 0; its id in page->flags is one more
 * @start_pfn: first page of its slot
 * @online_pages: pages from there on that have been added and onlined: whole
 *	memory blocks, the slot when it is populated
 * @kobj: its directory in sysfs
 * @lock: protects @state and @users
 * @state: see enum squeezy_state
 * @users: address spaces, pending assignments, migrations and reports that hold
 *	it
 * @oom_kills: processes killed because it was full
 * @oom_log: limits what is said of that
 * @reclaim_lock: held by the task that looks for memory while it is full
 * @cursor: where the search for reclaimable pages goes on, a page from its start
 * @poor_walks: searches in a row that found little
 * @last_poor_walk: when the last of them ended, in jiffies
 * @flags: SQUEEZY_REPORTING, see report.c
 * @batches: odd while blocks of it are off the free lists for a report, and
 *	another number after each time; written under zone->lock
 * @reported_bytes: what was reported to the host since boot
 * @doomed: the host may have discarded its memory, see doom.c; set while it is
 *	ASSIGNED, by cgroup_mutex, until it is FREE
 * @files: while it drains, pages of files that were left at the last look; by
 *	squeezy_mutex, as is @next_look
 * @next_look: in jiffies, when these are counted again
 * @zone: the memory itself
 * @zonelist: leads to @zone and nowhere else
 */
struct squeezy_partition {
	unsigned int number;
	unsigned long start_pfn;
	unsigned long online_pages;
	struct kobject kobj;

	spinlock_t lock; /* state, users */
	enum squeezy_state state;
	unsigned int users;

	atomic_long_t oom_kills;
	struct ratelimit_state oom_log;

	struct mutex reclaim_lock; /* cursor, poor_walks, last_poor_walk */
	unsigned long cursor;
	unsigned int poor_walks;
	unsigned long last_poor_walk;

	unsigned long flags;
	unsigned int batches;
	atomic64_t reported_bytes;

	bool doomed;

	unsigned long files;
	unsigned long next_look;

	struct zone zone;
	struct zonelist zonelist;
};

extern const char * const squeezy_state_names[SQUEEZY_NR_STATES];
/* Constant once squeezy_key is on. */
extern struct squeezy_layout squeezy_layout;
/* Ends with a NULL, wherever that is. */
extern struct squeezy_partition *squeezy_partitions[SQUEEZY_MAX_PARTITIONS + 1];
extern struct mutex squeezy_mutex;

#define squeezy_for_each_partition(p) \
	for (struct squeezy_partition **__slot = squeezy_partitions; \
	     ((p) = *__slot); __slot++)

/* Bytes of one private partition. */
static inline u64 squeezy_partition_size(void)
{
	return PFN_PHYS(squeezy_layout.partition_pages);
}

/* Bytes of the shared partition. */
static inline u64 squeezy_shared_size(void)
{
	return PFN_PHYS(squeezy_layout.shared_pages);
}

bool squeezy_may_change(enum squeezy_state from, enum squeezy_state to);
bool squeezy_change_state(struct squeezy_partition *p, enum squeezy_state from,
			  enum squeezy_state to);
void squeezy_enter_free(struct squeezy_partition *p);
unsigned int squeezy_count_states(unsigned int *counts);

struct squeezy_partition *squeezy_try_assign(int number);
int squeezy_wait_and_assign(int number, long timeout,
			    struct squeezy_partition **p);
bool squeezy_get(struct squeezy_partition *p);
bool __must_check squeezy_leave(struct squeezy_partition *p);

#endif /* _MM_SQUEEZY_CORE_H */
