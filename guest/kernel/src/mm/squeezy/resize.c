// SPDX-License-Identifier: GPL-2.0-only
/*
 * Plug and unplug partitions on behalf of the driver of the memory device.
 *
 * Unplugging costs the guest nothing per page: every page of a free partition is
 * on the zone's free lists, which are left as they are; the sections are marked
 * offline so that nobody who walks page frames looks at the memory, the counters
 * are adjusted, and one request gives the memory back. Plugging is the inverse.
 */
#include <linux/ktime.h>
#include <linux/memory.h>
#include <linux/memory_hotplug.h>
#include <linux/mm.h>
#include <linux/page-flags.h>
#include <linux/vmstat.h>
#include <linux/workqueue.h>

#include "../internal.h"
#include "partition.h"
#include <trace/events/squeezy.h>

/**
 * struct squeezy_device - the device whose region holds the partitions
 * @ops: how to talk to its driver; NULL when there is none
 * @owner: the driver's own data
 * @mgid: memory group that added memory belongs to
 * @addr: where the region starts, an address
 * @end: where the part of the region that may be plugged now ends, an address
 * @requested: bytes the host wants plugged, the shared partition included
 *
 * @requested is written by the driver's work without a lock; all else is
 * protected by squeezy_mutex.
 */
struct squeezy_device {
	const struct squeezy_device_ops *ops;
	void *owner;
	int mgid;
	u64 addr;
	u64 end;
	u64 requested;
};

static struct squeezy_device squeezy_device;

/*
 * The host was busy, or there was no memory for a memory map. Nothing tells us
 * for sure when that is over, and the driver's own timer waits for 50 seconds.
 * Each try may have Linux reclaim memory or kill for it, so they get rarer.
 */
#define SQUEEZY_RETRY_MIN	(HZ / 10)
#define SQUEEZY_RETRY_MAX	(3 * HZ)

/**
 * struct squeezy_backoff - when to try again
 * @delay: how long to wait after the next failure, in jiffies; 0 while nothing
 *	has failed
 * @populate_after: no memory is added before, in jiffies
 *
 * Protected by squeezy_mutex.
 */
struct squeezy_backoff {
	unsigned long delay;
	unsigned long populate_after;
};

static struct squeezy_backoff squeezy_backoff;

static void squeezy_retry_fn(struct work_struct *work)
{
	mutex_lock(&squeezy_mutex);
	if (squeezy_device.ops)
		squeezy_device.ops->kick(squeezy_device.owner);
	mutex_unlock(&squeezy_mutex);
}

static DECLARE_DELAYED_WORK(squeezy_retry, squeezy_retry_fn);

/* The device or the memory has failed us: try again, later than the last time. */
static void squeezy_back_off(int rc)
{
	struct squeezy_backoff *b = &squeezy_backoff;

	if (rc != -ETXTBSY && rc != -ENOMEM)
		return;
	b->delay = clamp(2 * b->delay, SQUEEZY_RETRY_MIN, SQUEEZY_RETRY_MAX);
	if (rc == -ENOMEM)
		b->populate_after = jiffies + b->delay;
	mod_delayed_work(system_wq, &squeezy_retry, b->delay);
}

static bool squeezy_may_populate(void)
{
	return !squeezy_backoff.delay ||
	       time_after_eq(jiffies, squeezy_backoff.populate_after);
}

/**
 * squeezy_memory_freed - ordinary memory may have become free
 *
 * Who waits for it need not do so until the next try is due.
 */
void squeezy_memory_freed(void)
{
	struct squeezy_backoff *b = &squeezy_backoff;

	lockdep_assert_held(&squeezy_mutex);
	if (!b->delay)
		return;
	b->delay = SQUEEZY_RETRY_MIN;
	b->populate_after = jiffies;
	/* What is left of a process goes after its address space. */
	mod_delayed_work(system_wq, &squeezy_retry, SQUEEZY_RETRY_MIN / 2);
}

static u64 squeezy_partition_size(void)
{
	return PFN_PHYS(squeezy_layout.partition_pages);
}

static u64 squeezy_shared_size(void)
{
	return PFN_PHYS(squeezy_layout.shared_pages);
}

/**
 * squeezy_surplus - how many partitions should go back to the host but have not
 * @counts: SQUEEZY_NR_STATES numbers to fill in with the states of all
 */
unsigned int squeezy_surplus(unsigned int *counts)
{
	const u64 requested = READ_ONCE(squeezy_device.requested);
	unsigned int plugged = squeezy_count_states(counts);
	u64 wanted = 0;

	if (requested > squeezy_shared_size())
		wanted = DIV_ROUND_UP_ULL(requested - squeezy_shared_size(),
					  squeezy_partition_size());
	return plugged > wanted ? plugged - wanted : 0;
}

/**
 * squeezy_kick - have the driver compare what is plugged with what is requested
 */
void squeezy_kick(void)
{
	unsigned int counts[SQUEEZY_NR_STATES];

	lockdep_assert_held(&squeezy_mutex);
	if (squeezy_device.ops && squeezy_surplus(counts))
		squeezy_device.ops->kick(squeezy_device.owner);
}

/**
 * struct squeezy_run - adjacent partitions that one request is about
 * @first: number of the lowest
 * @nr: how many; 0 when there is nothing to do
 * @state: the state they were in
 * @start: when work for them began, in ns
 * @device_ns: how long the device took for them
 */
struct squeezy_run {
	unsigned int first;
	unsigned int nr;
	enum squeezy_state state;
	u64 start;
	u64 device_ns;
};

static int squeezy_request_device(struct squeezy_run *run, bool plug)
{
	int (*request)(void *owner, u64 addr, u64 size);
	u64 start = ktime_get_ns();
	unsigned int i;
	int rc;

	request = plug ? squeezy_device.ops->plug : squeezy_device.ops->unplug;
	rc = request(squeezy_device.owner,
		     PFN_PHYS(squeezy_partitions[run->first]->start_pfn),
		     run->nr * squeezy_partition_size());
	run->device_ns += ktime_get_ns() - start;
	squeezy_count(SQUEEZY_DEVICE_REQUESTS, 1);
	for (i = run->first; !rc && !plug && i < run->first + run->nr; i++)
		squeezy_renew_failed(squeezy_partitions[i]);
	return rc;
}

/*
 * Make the memory of a partition, as far as it is online, visible or invisible,
 * in counters and to those who walk page frames. All of it is free. The
 * sections' online bits are otherwise only written while memory is hotplugged,
 * which __squeezy_veto_offline() keeps away from them.
 */
static void squeezy_set_visible(struct squeezy_partition *p, bool visible)
{
	const unsigned long start = p->start_pfn;
	const unsigned long end = start + p->online_pages;
	const long managed = zone_managed_pages(&p->zone);
	const long free = squeezy_pages_free(p);

	if (!p->online_pages)
		return;

	page_offline_begin();
	if (visible)
		online_mem_sections(start, end);
	else
		offline_mem_sections(start, end);
	page_offline_end();

	mod_zone_page_state(&p->zone, NR_FREE_PAGES, visible ? free : -free);
	totalram_pages_add(visible ? managed : -managed);
}

/* Of a run, @done partitions are what they should be. */
static void squeezy_account(const struct squeezy_run *run, bool plug,
			    unsigned int done, int rc)
{
	u64 guest_ns = ktime_get_ns() - run->start - run->device_ns;

	trace_squeezy_resize(run->first, run->nr, plug, rc, guest_ns,
			     run->device_ns);
	if (plug) {
		squeezy_count(SQUEEZY_PLUG_GUEST_NS, guest_ns);
		squeezy_count(SQUEEZY_PLUG_DEVICE_NS, run->device_ns);
		squeezy_count(SQUEEZY_PLUG_FAILURES, run->nr - done);
		squeezy_count(SQUEEZY_PLUGS, done);
	} else {
		squeezy_count(SQUEEZY_UNPLUG_GUEST_NS, guest_ns);
		squeezy_count(SQUEEZY_UNPLUG_DEVICE_NS, run->device_ns);
		squeezy_count(SQUEEZY_UNPLUG_FAILURES, run->nr - done);
		squeezy_count(SQUEEZY_UNPLUGS, done);
	}
}

static int squeezy_online_block(struct memory_block *block, void *found)
{
	/* 1 if it was online before. */
	int rc = device_online(&block->dev);

	*(bool *)found = true;
	return min(rc, 0);
}

/* Online a range that has been added. @found says whether it has. */
static int squeezy_online(u64 addr, u64 size, bool *found)
{
	int rc;

	*found = false;
	lock_device_hotplug();
	rc = walk_memory_blocks(addr, size, found, squeezy_online_block);
	unlock_device_hotplug();
	return rc;
}

/*
 * Add and online a memory block. The core onlines what it adds, but keeps to
 * itself when there was no memory for that.
 */
static int squeezy_add_block(u64 addr, u64 size)
{
	bool found;
	int rc;

	rc = squeezy_online(addr, size, &found);
	if (found)
		return rc;
	rc = add_memory_driver_managed(squeezy_device.mgid, addr, size,
				       "System RAM (virtio_mem)",
				       MHP_MERGE_RESOURCE | MHP_NID_IS_MGID);
	return rc ?: squeezy_online(addr, size, &found);
}

/*
 * Add and online what is missing of a plugged partition. Block by block: if there
 * is no memory for the memory map of a range, the core leaves the sections it has
 * added before behind. What has been added stays, for the next time.
 *
 * Return: 0 or -ENOMEM, which is all that can be wrong with a range that is ours.
 */
static int squeezy_add_memory(struct squeezy_partition *p)
{
	const u64 block = memory_block_size_bytes();
	int rc;

	while (p->online_pages < squeezy_layout.slot_pages) {
		rc = -ENOMEM;
		if (squeezy_memmap_available()) {
			squeezy_memmap_use(true);
			rc = squeezy_add_block(PFN_PHYS(p->start_pfn +
							p->online_pages), block);
			squeezy_memmap_use(false);
		}
		if (rc) {
			pr_warn_ratelimited("squeezy: partition %u has no memory map yet (%d): it goes back to the host until there is memory for it\n",
					    p->number, rc);
			return -ENOMEM;
		}
		p->online_pages += PHYS_PFN(block);
	}
	WARN_ON_ONCE(zone_managed_pages(&p->zone) !=
		     squeezy_layout.partition_pages);
	return 0;
}

static void squeezy_change_run(const struct squeezy_run *run,
			       enum squeezy_state from, enum squeezy_state to)
{
	unsigned int i;

	for (i = run->first; i < run->first + run->nr; i++)
		squeezy_change_state(squeezy_partitions[i], from, to);
}

/*
 * Give partitions that are owed back to the device. If it does not take them
 * now they stay owed, and the driver comes to squeezy_settle() first.
 */
static int squeezy_give_back(struct squeezy_run *run)
{
	unsigned int i;
	int rc;

	for (i = run->first; i < run->first + run->nr; i++)
		squeezy_set_visible(squeezy_partitions[i], false);
	rc = squeezy_request_device(run, false);
	for (i = run->first; rc && i < run->first + run->nr; i++)
		squeezy_set_visible(squeezy_partitions[i], true);
	if (!rc)
		squeezy_change_run(run, SQUEEZY_OWED, SQUEEZY_ABSENT);
	return rc;
}

/*
 * One by one: those that have their memory can be used while the others' is
 * being added. If it cannot be, what is left of the run goes back.
 *
 * Return: 0, -ENOMEM, or what keeps the device from taking it back.
 */
static int squeezy_populate(struct squeezy_run *run, unsigned int *done)
{
	struct squeezy_run left = *run;
	int rc = 0, refused;

	for (*done = 0; left.nr; left.nr--, left.first++, ++*done) {
		struct squeezy_partition *p = squeezy_partitions[left.first];

		rc = squeezy_add_memory(p);
		if (rc)
			break;
		squeezy_enter_free(p);
	}
	if (!rc)
		return 0;
	squeezy_change_run(&left, SQUEEZY_POPULATING, SQUEEZY_OWED);
	refused = squeezy_give_back(&left);
	run->device_ns = left.device_ns;
	squeezy_back_off(rc);
	return refused ?: rc;
}

static void squeezy_show_run(const struct squeezy_run *run)
{
	unsigned int i;

	for (i = run->first; i < run->first + run->nr; i++)
		squeezy_set_visible(squeezy_partitions[i], true);
}

static int squeezy_plug_run(struct squeezy_run *run)
{
	const bool populates = run->state == SQUEEZY_ABSENT;
	const enum squeezy_state plugging = populates ? SQUEEZY_POPULATING :
							SQUEEZY_PLUGGING;
	unsigned int i, done = 0;
	int rc;

	squeezy_change_run(run, run->state, plugging);
	rc = squeezy_request_device(run, true);
	if (rc) {
		squeezy_change_run(run, plugging, run->state);
		squeezy_back_off(rc);
	} else {
		squeezy_show_run(run);
		if (populates) {
			rc = squeezy_populate(run, &done);
		} else {
			for (i = run->first; i < run->first + run->nr; i++)
				squeezy_enter_free(squeezy_partitions[i]);
			done = run->nr;
		}
	}
	squeezy_account(run, true, done, rc);
	return rc;
}

/* Does the device allow to plug the partition? */
static bool squeezy_is_usable(struct squeezy_partition *p)
{
	const u64 end = PFN_PHYS(p->start_pfn + squeezy_layout.partition_pages);

	if (end <= squeezy_device.end)
		return true;
	pr_info_once("squeezy: partition %u is beyond what the device lets us plug yet\n",
		     p->number);
	return false;
}

/*
 * Finds at most @most adjacent partitions in @state from number *@next on, which
 * is moved on.
 */
static struct squeezy_run squeezy_find_run(enum squeezy_state state,
					   unsigned int *next,
					   unsigned int most)
{
	struct squeezy_run run = { .state = state, .start = ktime_get_ns() };

	for (; *next < squeezy_layout.nr && run.nr < most; ++*next) {
		struct squeezy_partition *p = squeezy_partitions[*next];

		if (READ_ONCE(p->state) != state) {
			if (run.nr)
				break;
			continue;
		}
		if (!squeezy_is_usable(p))
			break;
		if (!run.nr++)
			run.first = p->number;
	}
	return run;
}

/* Plugs at most *@wanted partitions in @state, and counts them off. */
static int squeezy_plug_those(enum squeezy_state state, unsigned int *wanted)
{
	unsigned int next = 0;
	int rc = 0;

	while (*wanted && !rc) {
		struct squeezy_run run =
			squeezy_find_run(state, &next,
					 min(*wanted, squeezy_layout.run));

		/* All there are, or all the device lets us have. */
		if (!run.nr)
			return next < squeezy_layout.nr ? -ENOSPC : 0;
		if (state == SQUEEZY_ABSENT && !squeezy_may_populate())
			return -ENOMEM;
		rc = squeezy_plug_run(&run);
		*wanted -= run.nr;
	}
	return rc;
}

/**
 * squeezy_plug - plug as many partitions as a size holds, lowest slots first
 * @owner: the driver's data, as registered
 * @size: bytes that the host wants plugged and that are not
 *
 * Those that have their memory map come before those that need memory for it.
 *
 * Return: 0, or what the driver's work does with its other errors: -EAGAIN,
 * -ENOMEM, -ENOSPC, -ETXTBSY, -EINVAL.
 */
int squeezy_plug(void *owner, u64 size)
{
	unsigned int wanted;
	int rc = 0;

	mutex_lock(&squeezy_mutex);
	if (squeezy_device.owner != owner)
		goto out_unlock;
	wanted = div64_u64(size, squeezy_partition_size());
	rc = squeezy_plug_those(SQUEEZY_UNPLUGGED, &wanted);
	if (!rc || rc == -ENOSPC)
		rc = squeezy_plug_those(SQUEEZY_ABSENT, &wanted);
	if (!rc)
		squeezy_backoff.delay = 0;
out_unlock:
	mutex_unlock(&squeezy_mutex);
	return rc;
}

/* To be given back, which a busy host refuses, perhaps for long: use them, then. */
static int squeezy_populate_owed(struct squeezy_run *run)
{
	unsigned int counts[SQUEEZY_NR_STATES], done;
	int rc;

	if (squeezy_surplus(counts) || !squeezy_may_populate())
		return -ETXTBSY;
	squeezy_change_run(run, SQUEEZY_OWED, SQUEEZY_POPULATING);
	rc = squeezy_populate(run, &done);
	squeezy_account(run, true, done, rc);
	/* Given back after all. */
	return rc == -ENOMEM ? 0 : rc;
}

/**
 * squeezy_settle - give partitions that are owed to the device back to it
 * @owner: the driver's data, as registered
 *
 * The driver calls it before it compares what is plugged with what is requested:
 * what is owed counts as plugged, and is of no use to anybody.
 *
 * Return: 0 when nothing is owed any more; -EAGAIN, -ETXTBSY, -EINVAL.
 */
int squeezy_settle(void *owner)
{
	struct squeezy_run run;
	unsigned int next = 0;
	int rc = 0;

	if (!squeezy_enabled() || squeezy_device.owner != owner)
		return 0;

	mutex_lock(&squeezy_mutex);
	while (!rc) {
		run = squeezy_find_run(SQUEEZY_OWED, &next, squeezy_layout.run);
		if (!run.nr)
			break;
		rc = squeezy_give_back(&run);
		if (rc == -ETXTBSY)
			rc = squeezy_populate_owed(&run);
	}
	squeezy_back_off(rc);
	mutex_unlock(&squeezy_mutex);
	return rc;
}

static int squeezy_unplug_run(struct squeezy_run *run)
{
	unsigned int i;
	int rc;

	for (i = run->first; i < run->first + run->nr; i++)
		squeezy_set_visible(squeezy_partitions[i], false);
	rc = squeezy_request_device(run, false);
	for (i = run->first; i < run->first + run->nr; i++) {
		struct squeezy_partition *p = squeezy_partitions[i];

		if (rc) {
			squeezy_set_visible(p, true);
			squeezy_enter_free(p);
		} else {
			squeezy_change_state(p, SQUEEZY_UNPLUGGING,
					     SQUEEZY_UNPLUGGED);
		}
	}
	squeezy_account(run, false, rc ? 0 : run->nr, rc);
	return rc;
}

static bool squeezy_claim_unused(struct squeezy_partition *p)
{
	/* Its last user may have left a moment ago. */
	switch (READ_ONCE(p->state)) {
	case SQUEEZY_DRAINING:
	case SQUEEZY_QUARANTINED:
		squeezy_drain(p);
		break;
	default:
		break;
	}
	return squeezy_change_state(p, SQUEEZY_FREE, SQUEEZY_UNPLUGGING);
}

/* Claims at most @most partitions below number *@next, which is moved on. */
static struct squeezy_run squeezy_claim_free(unsigned int *next,
					     unsigned int most)
{
	struct squeezy_run run = { .start = ktime_get_ns() };

	while (*next && run.nr < most) {
		if (squeezy_claim_unused(squeezy_partitions[--*next])) {
			run.first = *next;
			run.nr++;
		} else if (run.nr) {
			break;
		}
	}
	return run;
}

/**
 * squeezy_unplug - unplug free partitions, highest slots first
 * @owner: the driver's data, as registered
 * @size: bytes that are plugged and that the host does not want so
 *
 * Return: 0, -EBUSY if some could not go because none is free (the one that
 * becomes free next kicks the driver), -EAGAIN, -ETXTBSY, -EINVAL.
 */
int squeezy_unplug(void *owner, u64 size)
{
	unsigned int next, owed;
	int rc = 0;

	mutex_lock(&squeezy_mutex);
	if (squeezy_device.owner != owner)
		goto out_unlock;
	next = squeezy_layout.nr;
	owed = div64_u64(size, squeezy_partition_size());
	while (owed && !rc) {
		struct squeezy_run run =
			squeezy_claim_free(&next, min(owed, squeezy_layout.run));

		if (!run.nr) {
			rc = -EBUSY;
			break;
		}
		rc = squeezy_unplug_run(&run);
		owed -= run.nr;
	}
	squeezy_back_off(rc);
	if (!rc)
		squeezy_backoff.delay = 0;
out_unlock:
	mutex_unlock(&squeezy_mutex);
	return rc;
}

/**
 * __squeezy_veto_offline - must nobody offline this memory?
 * @start_pfn: its first page
 * @nr_pages: how many
 *
 * The sections of an unplugged partition are offline already, and its free pages
 * must not be isolated.
 */
bool __squeezy_veto_offline(unsigned long start_pfn, unsigned long nr_pages)
{
	return squeezy_pfn_partition(start_pfn);
}

/**
 * squeezy_register_device - offer a memory device's region for partitions
 * @ops: how to talk to its driver
 * @owner: the driver's own data
 * @addr: physical start of the region
 * @size: bytes of the region
 * @block_size: bytes that the device plugs and unplugs as one
 * @mgid: memory group that added memory belongs to
 *
 * Return: bytes of the region that are left to the driver: all of it unless
 * this is the first device and the command line asks for partitions.
 */
u64 squeezy_register_device(const struct squeezy_device_ops *ops, void *owner,
			    u64 addr, u64 size, u64 block_size, int mgid)
{
	u64 left = size;

	mutex_lock(&squeezy_mutex);
	if (!squeezy_enabled() && squeezy_setup(addr, size, block_size)) {
		squeezy_device = (struct squeezy_device) {
			.ops = ops,
			.owner = owner,
			.mgid = mgid,
			.addr = addr,
		};
		left = PFN_PHYS(squeezy_layout.first_pfn) - addr;
	}
	mutex_unlock(&squeezy_mutex);
	return left;
}

/**
 * squeezy_unregister_device - the driver goes away
 * @owner: the driver's data, as registered
 *
 * Partitions that are plugged stay usable, but none can be plugged or unplugged
 * any more.
 */
void squeezy_unregister_device(void *owner)
{
	mutex_lock(&squeezy_mutex);
	if (squeezy_device.ops && squeezy_device.owner == owner) {
		pr_warn("squeezy: the memory device is gone: partitions can no longer be resized\n");
		squeezy_device.ops = NULL;
		squeezy_device.owner = NULL;
	}
	mutex_unlock(&squeezy_mutex);
	cancel_delayed_work_sync(&squeezy_retry);
}

/**
 * squeezy_device_usable - how much of the region may be plugged has been read
 * @owner: the driver's data, as registered
 * @usable: bytes at the region's start that may be plugged now
 *
 * Return: how many of them are the driver's own.
 */
u64 squeezy_device_usable(void *owner, u64 usable)
{
	u64 own;

	if (!squeezy_enabled() || squeezy_device.owner != owner)
		return usable;

	mutex_lock(&squeezy_mutex);
	squeezy_device.end = squeezy_device.addr + usable;
	own = PFN_PHYS(squeezy_layout.first_pfn) - squeezy_device.addr;
	mutex_unlock(&squeezy_mutex);
	return min(usable, own);
}

/**
 * squeezy_device_requested - the requested size has been read
 * @owner: the driver's data, as registered
 * @requested: bytes the host wants plugged
 */
void squeezy_device_requested(void *owner, u64 requested)
{
	if (squeezy_enabled() && squeezy_device.owner == owner)
		WRITE_ONCE(squeezy_device.requested, requested);
}

/**
 * squeezy_shared_missing - how much of the shared partition is to be plugged
 * @owner: the driver's data, as registered
 * @plugged: bytes that are plugged in the whole region
 *
 * Return: bytes; all there are for a device without partitions.
 */
u64 squeezy_shared_missing(void *owner, u64 plugged)
{
	unsigned int counts[SQUEEZY_NR_STATES];
	u64 private;

	if (!squeezy_enabled() || squeezy_device.owner != owner)
		return U64_MAX;

	private = squeezy_count_states(counts) * squeezy_partition_size();
	return squeezy_shared_size() - min(squeezy_shared_size(),
					   plugged - private);
}
