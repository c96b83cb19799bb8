// SPDX-License-Identifier: GPL-2.0-only
/*
 * Adjacent partitions that are plugged or unplugged together, with one request.
 */
#include <linux/ktime.h>
#include <linux/lockdep.h>
#include <linux/mm.h>

#include "core.h"
#include "counters.h"
#include "device.h"
#include "failed.h"
#include "run.h"
#include "zone.h"
#include <trace/events/squeezy.h>

/**
 * squeezy_find_run - find adjacent partitions that are in one state
 * @state: the state
 * @next: number of the first to look at; moved on
 * @most: how many at most
 */
struct squeezy_run squeezy_find_run(enum squeezy_state state,
				    unsigned int *next, unsigned int most)
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

/**
 * squeezy_change_run - have all partitions of a run take one step
 * @run: the run
 * @from: the state they are in
 * @to: the state next
 */
void squeezy_change_run(const struct squeezy_run *run, enum squeezy_state from,
			enum squeezy_state to)
{
	struct squeezy_partition *p;

	squeezy_for_each_in_run(p, run)
		squeezy_change_state(p, from, to);
}

/**
 * squeezy_show_run - make the memory of all partitions of a run visible
 * @run: the run, hidden
 */
void squeezy_show_run(const struct squeezy_run *run)
{
	struct squeezy_partition *p;

	squeezy_for_each_in_run(p, run)
		squeezy_show(p);
}

/**
 * squeezy_hide_run - undo squeezy_show_run()
 * @run: the run, visible
 */
void squeezy_hide_run(const struct squeezy_run *run)
{
	struct squeezy_partition *p;

	squeezy_for_each_in_run(p, run)
		squeezy_hide(p);
}

static int squeezy_request(struct squeezy_run *run,
			   int (*request)(u64 addr, u64 size))
{
	const u64 start = ktime_get_ns();
	int rc;

	rc = request(PFN_PHYS(squeezy_partitions[run->first]->start_pfn),
		     run->nr * squeezy_partition_size());
	run->device_ns += ktime_get_ns() - start;
	squeezy_count(SQUEEZY_DEVICE_REQUESTS, 1);
	return rc;
}

/**
 * squeezy_request_plug - have the device plug a run, with one request
 * @run: the run
 *
 * Return: 0 or what the driver says, see struct squeezy_device_ops.
 */
int squeezy_request_plug(struct squeezy_run *run)
{
	return squeezy_request(run, squeezy_device_plug);
}

/**
 * squeezy_request_unplug - have the device unplug a run, with one request
 * @run: the run, hidden
 *
 * Return: 0 or what the driver says, see struct squeezy_device_ops.
 */
int squeezy_request_unplug(struct squeezy_run *run)
{
	struct squeezy_partition *p;
	int rc;

	rc = squeezy_request(run, squeezy_device_unplug);
	if (rc)
		return rc;
	squeezy_for_each_in_run(p, run)
		squeezy_renew_failed(p);
	return 0;
}

static u64 squeezy_guest_ns(const struct squeezy_run *run)
{
	return ktime_get_ns() - run->start - run->device_ns;
}

/**
 * squeezy_account_plug - count the plug of a run
 * @run: the run
 * @done: how many of its partitions are plugged now
 * @rc: how it ended
 */
void squeezy_account_plug(const struct squeezy_run *run, unsigned int done,
			  int rc)
{
	const u64 guest_ns = squeezy_guest_ns(run);

	trace_squeezy_resize(run->first, run->nr, true, rc, guest_ns,
			     run->device_ns);
	squeezy_count(SQUEEZY_PLUG_GUEST_NS, guest_ns);
	squeezy_count(SQUEEZY_PLUG_DEVICE_NS, run->device_ns);
	squeezy_count(SQUEEZY_PLUG_FAILURES, run->nr - done);
	squeezy_count(SQUEEZY_PLUGS, done);
}

/**
 * squeezy_account_unplug - count the unplug of a run
 * @run: the run
 * @done: how many of its partitions are unplugged now
 * @rc: how it ended
 */
void squeezy_account_unplug(const struct squeezy_run *run, unsigned int done,
			    int rc)
{
	const u64 guest_ns = squeezy_guest_ns(run);

	trace_squeezy_resize(run->first, run->nr, false, rc, guest_ns,
			     run->device_ns);
	squeezy_count(SQUEEZY_UNPLUG_GUEST_NS, guest_ns);
	squeezy_count(SQUEEZY_UNPLUG_DEVICE_NS, run->device_ns);
	squeezy_count(SQUEEZY_UNPLUG_FAILURES, run->nr - done);
	squeezy_count(SQUEEZY_UNPLUGS, done);
}
