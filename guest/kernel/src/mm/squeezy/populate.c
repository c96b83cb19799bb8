// SPDX-License-Identifier: GPL-2.0-only
/*
 * Add the memory of partitions that are plugged for the first time, and give back
 * those for which there is no memory map.
 */
#include <linux/memory.h>
#include <linux/memory_hotplug.h>
#include <linux/mm.h>

#include "core.h"
#include "device.h"
#include "memmap.h"
#include "populate.h"
#include "retry.h"
#include "run.h"
#include "zone.h"

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
	rc = add_memory_driver_managed(squeezy_device_mgid(), addr, size,
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
			squeezy_memmap_begin();
			rc = squeezy_add_block(PFN_PHYS(p->start_pfn +
							p->online_pages), block);
			squeezy_memmap_end();
		}
		if (rc) {
			pr_warn_ratelimited("squeezy: partition %u has no memory map yet (%d): it goes back to the host until there is memory for it\n",
					    p->number, rc);
			return -ENOMEM;
		}
		p->online_pages += PHYS_PFN(block);
	}
	WARN_ON_ONCE(squeezy_managed_pages(p) !=
		     squeezy_layout.partition_pages);
	return 0;
}

/**
 * squeezy_give_back - give partitions that are owed back to the device
 * @run: the partitions, owed
 *
 * If it does not take them now they stay owed, and the driver comes to
 * squeezy_settle() first.
 *
 * Return: 0 or what the driver says, see struct squeezy_device_ops.
 */
int squeezy_give_back(struct squeezy_run *run)
{
	int rc;

	squeezy_hide_run(run);
	rc = squeezy_request_unplug(run);
	if (rc)
		squeezy_show_run(run);
	else
		squeezy_change_run(run, SQUEEZY_OWED, SQUEEZY_ABSENT);
	return rc;
}

/**
 * squeezy_populate - add the memory of partitions that are plugged, and use it
 * @run: the partitions, populating
 * @done: where to put how many can be used now
 *
 * One by one: those that have their memory can be used while the others' is
 * being added. If it cannot be, what is left of the run goes back.
 *
 * Return: 0, -ENOMEM, or what keeps the device from taking it back.
 */
int squeezy_populate(struct squeezy_run *run, unsigned int *done)
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

/**
 * squeezy_populate_owed - populate partitions that a busy host does not take back
 * @run: the partitions, owed
 *
 * It may refuse them for long: use them, then, unless nobody wants them.
 *
 * Return: 0 if they are owed no more, -ETXTBSY, or what keeps the device from
 * taking them back.
 */
int squeezy_populate_owed(struct squeezy_run *run)
{
	unsigned int counts[SQUEEZY_NR_STATES], done;
	int rc;

	if (squeezy_surplus(counts) || !squeezy_may_populate())
		return -ETXTBSY;
	squeezy_change_run(run, SQUEEZY_OWED, SQUEEZY_POPULATING);
	rc = squeezy_populate(run, &done);
	squeezy_account_plug(run, done, rc);
	/* Given back after all. */
	return rc == -ENOMEM ? 0 : rc;
}
