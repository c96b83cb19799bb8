// SPDX-License-Identifier: GPL-2.0-only
/*
 * The memory device whose region holds the partitions: how to reach its driver,
 * and what the driver has read.
 */
#include <linux/lockdep.h>
#include <linux/math64.h>
#include <linux/mm.h>

#include "core.h"
#include "device.h"

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

/**
 * squeezy_set_device - partitions are in the region of this device
 * @ops: how to talk to its driver
 * @owner: the driver's own data
 * @addr: physical start of the region
 * @mgid: memory group that added memory belongs to
 */
void squeezy_set_device(const struct squeezy_device_ops *ops, void *owner,
			u64 addr, int mgid)
{
	lockdep_assert_held(&squeezy_mutex);
	squeezy_device = (struct squeezy_device) {
		.ops = ops,
		.owner = owner,
		.mgid = mgid,
		.addr = addr,
	};
}

/**
 * squeezy_clear_device - the device is gone
 */
void squeezy_clear_device(void)
{
	lockdep_assert_held(&squeezy_mutex);
	squeezy_device.ops = NULL;
	squeezy_device.owner = NULL;
}

/**
 * squeezy_is_owner - is this the driver of the device with the partitions?
 * @owner: the driver's data, as registered
 */
bool squeezy_is_owner(void *owner)
{
	return squeezy_device.owner == owner;
}

/**
 * squeezy_device_mgid - the memory group that added memory belongs to
 */
int squeezy_device_mgid(void)
{
	lockdep_assert_held(&squeezy_mutex);
	return squeezy_device.mgid;
}

/**
 * squeezy_is_usable - does the device allow to plug a partition?
 * @p: the partition
 */
bool squeezy_is_usable(struct squeezy_partition *p)
{
	const u64 end = PFN_PHYS(p->start_pfn + squeezy_layout.partition_pages);

	if (end <= squeezy_device.end)
		return true;
	pr_info_once("squeezy: partition %u is beyond what the device lets us plug yet\n",
		     p->number);
	return false;
}

/**
 * squeezy_device_plug - send one request to plug a range
 * @addr: where it starts
 * @size: bytes of it
 *
 * Return: 0 or what the driver says, see struct squeezy_device_ops.
 */
int squeezy_device_plug(u64 addr, u64 size)
{
	lockdep_assert_held(&squeezy_mutex);
	return squeezy_device.ops->plug(squeezy_device.owner, addr, size);
}

/**
 * squeezy_device_unplug - send one request to unplug a range
 * @addr: where it starts
 * @size: bytes of it
 *
 * Return: 0 or what the driver says, see struct squeezy_device_ops.
 */
int squeezy_device_unplug(u64 addr, u64 size)
{
	lockdep_assert_held(&squeezy_mutex);
	return squeezy_device.ops->unplug(squeezy_device.owner, addr, size);
}

/**
 * squeezy_device_kick - have the driver compare what is plugged with the request
 */
void squeezy_device_kick(void)
{
	lockdep_assert_held(&squeezy_mutex);
	if (squeezy_device.ops)
		squeezy_device.ops->kick(squeezy_device.owner);
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
 * squeezy_device_usable - how much of the region may be plugged has been read
 * @owner: the driver's data, as registered
 * @usable: bytes at the region's start that may be plugged now
 *
 * Return: how many of them are the driver's own.
 */
u64 squeezy_device_usable(void *owner, u64 usable)
{
	u64 own;

	if (!squeezy_enabled() || !squeezy_is_owner(owner))
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
	if (squeezy_enabled() && squeezy_is_owner(owner))
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

	if (!squeezy_enabled() || !squeezy_is_owner(owner))
		return U64_MAX;

	private = squeezy_count_states(counts) * squeezy_partition_size();
	return squeezy_shared_size() - min(squeezy_shared_size(),
					   plugged - private);
}
