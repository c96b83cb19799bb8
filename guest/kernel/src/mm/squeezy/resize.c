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
#include <linux/math64.h>
#include <linux/mm.h>

#include "core.h"
#include "device.h"
#include "drain.h"
#include "populate.h"
#include "retry.h"
#include "run.h"
#include "zone.h"

static int squeezy_plug_run(struct squeezy_run *run)
{
	const bool populates = run->state == SQUEEZY_ABSENT;
	const enum squeezy_state plugging = populates ? SQUEEZY_POPULATING :
							SQUEEZY_PLUGGING;
	struct squeezy_partition *p;
	unsigned int done = 0;
	int rc;

	squeezy_change_run(run, run->state, plugging);
	rc = squeezy_request_plug(run);
	if (rc) {
		squeezy_change_run(run, plugging, run->state);
		squeezy_back_off(rc);
	} else {
		squeezy_show_run(run);
		if (populates) {
			rc = squeezy_populate(run, &done);
		} else {
			squeezy_for_each_in_run(p, run)
				squeezy_enter_free(p);
			done = run->nr;
		}
	}
	squeezy_account_plug(run, done, rc);
	return rc;
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
	if (!squeezy_is_owner(owner))
		goto out_unlock;
	wanted = div64_u64(size, squeezy_partition_size());
	rc = squeezy_plug_those(SQUEEZY_UNPLUGGED, &wanted);
	if (!rc || rc == -ENOSPC)
		rc = squeezy_plug_those(SQUEEZY_ABSENT, &wanted);
	if (!rc)
		squeezy_stop_backing_off();
out_unlock:
	mutex_unlock(&squeezy_mutex);
	return rc;
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

	if (!squeezy_enabled() || !squeezy_is_owner(owner))
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
	struct squeezy_partition *p;
	int rc;

	squeezy_hide_run(run);
	rc = squeezy_request_unplug(run);
	if (rc) {
		squeezy_for_each_in_run(p, run) {
			squeezy_show(p);
			squeezy_enter_free(p);
		}
	} else {
		squeezy_change_run(run, SQUEEZY_UNPLUGGING, SQUEEZY_UNPLUGGED);
	}
	squeezy_account_unplug(run, rc ? 0 : run->nr, rc);
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
	if (!squeezy_is_owner(owner))
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
		squeezy_stop_backing_off();
out_unlock:
	mutex_unlock(&squeezy_mutex);
	return rc;
}
