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
 *     memory_failure() takes a page off them, and unplugging puts it back.
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
#ifndef _MM_SQUEEZY_PARTITION_H
#define _MM_SQUEEZY_PARTITION_H

#include <linux/atomic.h>
#include <linux/kobject.h>
#include <linux/mmzone.h>
#include <linux/mutex.h>
#include <linux/page_reporting.h>
#include <linux/ratelimit.h>
#include <linux/scatterlist.h>
#include <linux/sizes.h>
#include <linux/spinlock.h>
#include <linux/squeezy_hooks.h>
#include <uapi/linux/squeezy.h>

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
 * @flags: SQUEEZY_REPORTING
 * @batches: odd while blocks of it are off the free lists for a report, and
 *	another number after each time; written under zone->lock
 * @reported_bytes: what was reported to the host since boot
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

	unsigned long files;
	unsigned long next_look;

	struct zone zone;
	struct zonelist zonelist;
};

/* A bit of squeezy_partition.flags: a report is under way. */
#define SQUEEZY_REPORTING	0

/*
 * Bytes that are off the free lists for a report at a time, and with them the
 * time that a fault may have to wait for the host: some milliseconds.
 */
#define SQUEEZY_BATCH_BYTES	SZ_64M

/**
 * struct squeezy_batch - free blocks that the host is told about at once
 * @sgl: the blocks; adjacent ones are one entry
 * @nents: entries
 * @bytes: of all blocks
 */
struct squeezy_batch {
	struct scatterlist sgl[PAGE_REPORTING_CAPACITY];
	unsigned int nents;
	unsigned int bytes;
};

/**
 * struct squeezy_layout - how the device's region is divided
 * @partition_pages: pages of one private partition
 * @slot_pages: distance between two slots, whole memory blocks
 * @shared_pages: pages of the shared partition
 * @first_pfn: first page of slot 0
 * @nr: number of private partitions
 * @run: most partitions that one request to the device can be about; 1 where
 *	they have gaps between them
 */
struct squeezy_layout {
	unsigned long partition_pages;
	unsigned long slot_pages;
	unsigned long shared_pages;
	unsigned long first_pfn;
	unsigned int nr;
	unsigned int run;
};

/**
 * struct squeezy_request - what the command line asks for
 * @partition_size: bytes of one private partition
 * @shared_size: bytes of the shared partition
 * @nr: number of private partitions
 * @background_reporting: whether Linux reports free pages by itself, too
 */
struct squeezy_request {
	u64 partition_size;
	u64 shared_size;
	unsigned int nr;
	bool background_reporting;
};

/**
 * enum squeezy_counter - what is counted; times are in ns
 * @SQUEEZY_PLUGS: partitions plugged
 * @SQUEEZY_UNPLUGS: partitions unplugged
 * @SQUEEZY_PLUG_FAILURES: plugs that the device or a lack of memory prevented
 * @SQUEEZY_UNPLUG_FAILURES: unplugs that the device refused
 * @SQUEEZY_DEVICE_REQUESTS: requests sent to the device for partitions
 * @SQUEEZY_PLUG_GUEST_NS: time plugs took in the guest
 * @SQUEEZY_PLUG_DEVICE_NS: time plugs waited for the device
 * @SQUEEZY_UNPLUG_GUEST_NS: time unplugs took in the guest
 * @SQUEEZY_UNPLUG_DEVICE_NS: time unplugs waited for the device
 * @SQUEEZY_ASSIGNMENTS: partitions assigned
 * @SQUEEZY_WAITS: assignments that had to wait
 * @SQUEEZY_WAIT_TIMEOUTS: of these, how many waited in vain
 * @SQUEEZY_OOM_KILLS: processes killed because their partition was full
 * @SQUEEZY_LRU_DRAINS: drains of every CPU's folio batches for full partitions
 * @SQUEEZY_QUARANTINES: times an unused partition was left with pages
 * @SQUEEZY_STRAGGLERS: how many pages these were
 * @SQUEEZY_REPORTS: reports of free blocks
 * @SQUEEZY_REPORTED_BYTES: bytes that were reported
 * @SQUEEZY_REPORTED_BLOCKS: free blocks these bytes were in
 * @SQUEEZY_REPORT_REQUESTS: requests sent to the device for them
 * @SQUEEZY_REPORT_GUEST_NS: time reports took in the guest
 * @SQUEEZY_REPORT_DEVICE_NS: time reports waited for the device
 */
enum squeezy_counter {
	SQUEEZY_PLUGS,
	SQUEEZY_UNPLUGS,
	SQUEEZY_PLUG_FAILURES,
	SQUEEZY_UNPLUG_FAILURES,
	SQUEEZY_DEVICE_REQUESTS,
	SQUEEZY_PLUG_GUEST_NS,
	SQUEEZY_PLUG_DEVICE_NS,
	SQUEEZY_UNPLUG_GUEST_NS,
	SQUEEZY_UNPLUG_DEVICE_NS,
	SQUEEZY_ASSIGNMENTS,
	SQUEEZY_WAITS,
	SQUEEZY_WAIT_TIMEOUTS,
	SQUEEZY_OOM_KILLS,
	SQUEEZY_LRU_DRAINS,
	SQUEEZY_QUARANTINES,
	SQUEEZY_STRAGGLERS,
	SQUEEZY_REPORTS,
	SQUEEZY_REPORTED_BYTES,
	SQUEEZY_REPORTED_BLOCKS,
	SQUEEZY_REPORT_REQUESTS,
	SQUEEZY_REPORT_GUEST_NS,
	SQUEEZY_REPORT_DEVICE_NS,
	SQUEEZY_NR_COUNTERS
};

extern atomic64_t squeezy_counters[SQUEEZY_NR_COUNTERS];

static inline void squeezy_count(enum squeezy_counter counter, u64 n)
{
	atomic64_add(n, &squeezy_counters[counter]);
}

extern const char * const squeezy_state_names[SQUEEZY_NR_STATES];
extern struct squeezy_layout squeezy_layout;
/* Ends with a NULL, wherever that is. */
extern struct squeezy_partition *squeezy_partitions[SQUEEZY_MAX_PARTITIONS + 1];
extern struct mutex squeezy_mutex;

#define squeezy_for_each_partition(p) \
	for (struct squeezy_partition **__slot = squeezy_partitions; \
	     ((p) = *__slot); __slot++)

/* partition.c: the state machine */
bool squeezy_may_change(enum squeezy_state from, enum squeezy_state to);
void squeezy_set_state(struct squeezy_partition *p, enum squeezy_state to);
bool squeezy_change_state(struct squeezy_partition *p, enum squeezy_state from,
			  enum squeezy_state to);
struct squeezy_partition *squeezy_try_assign(int number);
bool squeezy_get(struct squeezy_partition *p);
void squeezy_put(struct squeezy_partition *p);
int squeezy_wait_and_assign(int number, long timeout,
			    struct squeezy_partition **p);
void squeezy_enter_free(struct squeezy_partition *p);
unsigned int squeezy_count_states(unsigned int *counts);

/* region.c: the layout, and which page belongs to whom */
int squeezy_make_layout(const struct squeezy_request *request, u64 addr,
			u64 size, u64 block_size, u64 memory_block_size,
			struct squeezy_layout *layout, const char **why);
bool squeezy_setup(u64 addr, u64 size, u64 block_size);
struct squeezy_partition *squeezy_pfn_partition(unsigned long pfn);
struct squeezy_partition *squeezy_folio_partition(struct folio *folio);
struct folio *squeezy_folio_at(unsigned long pfn);

/* resize.c: plug, unplug, populate */
void squeezy_kick(void);
void squeezy_memory_freed(void);
unsigned int squeezy_surplus(unsigned int *counts);

/* memmap.c: memory for memory maps */
void squeezy_memmap_reserve(void);
bool squeezy_memmap_available(void);
void squeezy_memmap_use(bool use);

/* failed.c: pages that failed while they were free */
#ifdef CONFIG_MEMORY_FAILURE
unsigned long squeezy_pages_failed(struct squeezy_partition *p);
void squeezy_renew_failed(struct squeezy_partition *p);
#else
static inline unsigned long squeezy_pages_failed(struct squeezy_partition *p)
{
	return 0;
}

static inline void squeezy_renew_failed(struct squeezy_partition *p)
{
}
#endif

/* drain.c: get every page of an unused partition back */
unsigned long squeezy_pages_free(struct squeezy_partition *p);
bool squeezy_is_empty(struct squeezy_partition *p);
bool squeezy_drain(struct squeezy_partition *p);
void squeezy_queue_drain(void);

/* reclaim.c: get back what only reclaim can */
bool squeezy_reclaim(struct squeezy_partition *p);

/* report.c: give free blocks of an assigned partition back to the host */
void squeezy_batch_init(struct squeezy_batch *batch);
bool squeezy_batch_add(struct squeezy_batch *batch, struct page *page,
		       unsigned int order);
unsigned int squeezy_report_wait(struct squeezy_partition *p);
bool squeezy_report_interfered(struct squeezy_partition *p,
			       unsigned int batches);
int squeezy_report(struct squeezy_partition *p, unsigned int order);

/* oom.c */

/* How long nobody of those who die may end when there is nobody else to kill. */
#define SQUEEZY_STUCK_JIFFIES	(10 * HZ)

/**
 * struct squeezy_wait - a wait for those who die
 * @since: when one of them ended last, or when the wait began, in jiffies
 * @last: when it was asked for last, in jiffies; a pause begins anew
 * @exits: tasks that had ended by then
 */
struct squeezy_wait {
	unsigned long since;
	unsigned long last;
	unsigned long exits;
};

bool squeezy_may_wait(struct squeezy_wait *wait, unsigned long now,
		      unsigned long exits);
void squeezy_out_of_memory(struct squeezy_partition *p, gfp_t gfp, int order);

/* shared.c */
void squeezy_init_shared(void);

/* sysfs.c */
int squeezy_sysfs_init(void);

#endif /* _MM_SQUEEZY_PARTITION_H */
