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
 * when that is over, and the driver's own timer waits for 50 seconds.
 */
#define SQUEEZY_RETRY_JIFFIES	(HZ / 5)

static void squeezy_retry_fn(struct work_struct *work)
{
	mutex_lock(&squeezy_mutex);
	if (squeezy_device.ops)
		squeezy_device.ops->kick(squeezy_device.owner);
	mutex_unlock(&squeezy_mutex);
}

static DECLARE_DELAYED_WORK(squeezy_retry, squeezy_retry_fn);

static u64 squeezy_partition_size(void)
{
	return PFN_PHYS(squeezy_layout.partition_pages);
}

static u64 squeezy_shared_size(void)
{
	return PFN_PHYS(squeezy_layout.shared_pages);
}

/**
 * squeezy_owed - how many partitions should go back to the host but have not
 * @counts: SQUEEZY_NR_STATES numbers to fill in with the states of all
 */
unsigned int squeezy_owed(unsigned int *counts)
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
	if (squeezy_device.ops && squeezy_owed(counts))
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
	int rc;

	request = plug ? squeezy_device.ops->plug : squeezy_device.ops->unplug;
	rc = request(squeezy_device.owner,
		     PFN_PHYS(squeezy_partitions[run->first]->start_pfn),
		     run->nr * squeezy_partition_size());
	run->device_ns += ktime_get_ns() - start;
	squeezy_count(SQUEEZY_DEVICE_REQUESTS, 1);
	return rc;
}

/*
 * Make the memory of a partition visible or invisible, in counters and to those
 * who walk page frames. Every page of it is free. The sections' online bits are
 * otherwise only written while memory is hotplugged, which
 * __squeezy_veto_offline() keeps away from them.
 */
static void squeezy_set_visible(struct squeezy_partition *p, bool visible)
{
	const unsigned long start = p->start_pfn;
	const unsigned long end = start + squeezy_layout.slot_pages;
	const long pages = zone_managed_pages(&p->zone);

	page_offline_begin();
	if (visible)
		online_mem_sections(start, end);
	else
		offline_mem_sections(start, end);
	page_offline_end();

	mod_zone_page_state(&p->zone, NR_FREE_PAGES, visible ? pages : -pages);
	totalram_pages_add(visible ? pages : -pages);
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

/*
 * Add and online the memory of a partition that has been plugged just now. Block
 * by block: if there is no memory for the memory map of a range, the core leaves
 * the sections it has added before behind.
 */
static int squeezy_add_memory(struct squeezy_partition *p)
{
	const u64 start = PFN_PHYS(p->start_pfn);
	const u64 end = start + PFN_PHYS(squeezy_layout.slot_pages);
	const u64 block = memory_block_size_bytes();
	u64 addr;
	int rc = 0;

	for (addr = start; addr < end; addr += block) {
		rc = add_memory_driver_managed(squeezy_device.mgid, addr, block,
					       "System RAM (virtio_mem)",
					       MHP_MERGE_RESOURCE |
					       MHP_NID_IS_MGID);
		if (rc)
			break;
	}
	if (!rc && zone_managed_pages(&p->zone) ==
		   squeezy_layout.partition_pages)
		return 0;

	/* Without an error, some block did not come online for want of memory. */
	while (addr > start) {
		addr -= block;
		WARN_ON_ONCE(offline_and_remove_memory(addr, block));
	}
	return rc ?: -ENOMEM;
}

/*
 * One by one: those that have their memory can be used while the others' is
 * being added. If it cannot be, what is left of the run goes back.
 */
static unsigned int squeezy_populate(struct squeezy_run *run, int *rc)
{
	struct squeezy_run left = *run;

	while (left.nr) {
		struct squeezy_partition *p = squeezy_partitions[left.first];

		*rc = squeezy_add_memory(p);
		if (*rc) {
			squeezy_request_device(&left, false);
			break;
		}
		squeezy_enter_free(p);
		left.first++;
		left.nr--;
	}
	return run->nr - left.nr;
}

static unsigned int squeezy_replug(struct squeezy_run *run)
{
	unsigned int i;

	for (i = run->first; i < run->first + run->nr; i++) {
		squeezy_set_visible(squeezy_partitions[i], true);
		squeezy_enter_free(squeezy_partitions[i]);
	}
	return run->nr;
}

static int squeezy_plug_run(struct squeezy_run *run)
{
	const enum squeezy_state from = run->state == SQUEEZY_ABSENT ?
					SQUEEZY_POPULATING : SQUEEZY_PLUGGING;
	unsigned int i, done = 0;
	int rc;

	rc = squeezy_request_device(run, true);
	if (!rc && run->state == SQUEEZY_ABSENT)
		done = squeezy_populate(run, &rc);
	else if (!rc)
		done = squeezy_replug(run);
	for (i = run->first + done; i < run->first + run->nr; i++)
		squeezy_change_state(squeezy_partitions[i], from, run->state);
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

/* Claims at most @most partitions from number *@next on, which is moved on. */
static struct squeezy_run squeezy_claim_missing(unsigned int *next,
						unsigned int most)
{
	struct squeezy_run run = { .start = ktime_get_ns() };

	for (; *next < squeezy_layout.nr && run.nr < most; ++*next) {
		struct squeezy_partition *p = squeezy_partitions[*next];
		const enum squeezy_state state = READ_ONCE(p->state);

		if (run.nr && state != run.state)
			break;
		if (state != SQUEEZY_ABSENT && state != SQUEEZY_UNPLUGGED)
			continue;
		if (!squeezy_is_usable(p))
			break;
		squeezy_change_state(p, state, state == SQUEEZY_ABSENT ?
					       SQUEEZY_POPULATING :
					       SQUEEZY_PLUGGING);
		if (!run.nr++) {
			run.first = p->number;
			run.state = state;
		}
	}
	return run;
}

/**
 * squeezy_plug - plug as many partitions as a size holds, lowest slots first
 * @owner: the driver's data, as registered
 * @size: bytes that the host wants plugged and that are not
 *
 * Return: 0, or what the driver's work does with its other errors: -EAGAIN,
 * -ENOMEM, -ENOSPC, -ETXTBSY, -EINVAL.
 */
int squeezy_plug(void *owner, u64 size)
{
	unsigned int next = 0, wanted;
	int rc = 0;

	mutex_lock(&squeezy_mutex);
	if (squeezy_device.owner != owner)
		goto out_unlock;
	wanted = div64_u64(size, squeezy_partition_size());
	while (wanted && !rc) {
		struct squeezy_run run =
			squeezy_claim_missing(&next, min(wanted, squeezy_layout.run));

		if (!run.nr) {
			/* All there are, or all the device lets us have. */
			rc = next < squeezy_layout.nr ? -ENOSPC : 0;
			break;
		}
		rc = squeezy_plug_run(&run);
		wanted -= run.nr;
	}
	if (rc == -ETXTBSY || rc == -ENOMEM)
		schedule_delayed_work(&squeezy_retry, SQUEEZY_RETRY_JIFFIES);
out_unlock:
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
	if (rc == -ETXTBSY)
		schedule_delayed_work(&squeezy_retry, SQUEEZY_RETRY_JIFFIES);
out_unlock:
	mutex_unlock(&squeezy_mutex);
	return rc;
}

/**
 * __squeezy_veto_offline - may somebody offline this memory?
 * @start_pfn: its first page
 * @nr_pages: how many
 *
 * The sections of an unplugged partition are offline already, and its free pages
 * must not be isolated. Only a partition whose populating fails is offlined, by
 * squeezy_add_memory().
 */
bool __squeezy_veto_offline(unsigned long start_pfn, unsigned long nr_pages)
{
	struct squeezy_partition *p = squeezy_pfn_partition(start_pfn);

	return p && READ_ONCE(p->state) != SQUEEZY_POPULATING;
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
