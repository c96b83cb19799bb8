// SPDX-License-Identifier: GPL-2.0-only
/*
 * The state machine of a partition; core.h has the states, the locks and the
 * invariants.
 */
#include <linux/bits.h>
#include <linux/mm.h>
#include <linux/sched/signal.h>
#include <linux/wait.h>

#include "core.h"
#include "counters.h"

#define CREATE_TRACE_POINTS
#include <trace/events/squeezy.h>

DEFINE_STATIC_KEY_FALSE(squeezy_key);

struct squeezy_layout squeezy_layout;
struct squeezy_partition *squeezy_partitions[SQUEEZY_MAX_PARTITIONS + 1];

/* Plug, unplug, populate and drain, one at a time. */
DEFINE_MUTEX(squeezy_mutex);

/* Assignments that wait for a partition to become free. */
static DECLARE_WAIT_QUEUE_HEAD(squeezy_waiters);

const char * const squeezy_state_names[SQUEEZY_NR_STATES] = {
	[SQUEEZY_ABSENT] = "absent",
	[SQUEEZY_POPULATING] = "populating",
	[SQUEEZY_OWED] = "owed",
	[SQUEEZY_FREE] = "free",
	[SQUEEZY_ASSIGNED] = "assigned",
	[SQUEEZY_DRAINING] = "draining",
	[SQUEEZY_QUARANTINED] = "quarantined",
	[SQUEEZY_UNPLUGGING] = "unplugging",
	[SQUEEZY_UNPLUGGED] = "unplugged",
	[SQUEEZY_PLUGGING] = "plugging",
};

static const unsigned int squeezy_next_states[SQUEEZY_NR_STATES] = {
	[SQUEEZY_ABSENT] = BIT(SQUEEZY_POPULATING),
	[SQUEEZY_POPULATING] = BIT(SQUEEZY_FREE) | BIT(SQUEEZY_OWED) |
			       BIT(SQUEEZY_ABSENT),
	[SQUEEZY_OWED] = BIT(SQUEEZY_POPULATING) | BIT(SQUEEZY_ABSENT),
	[SQUEEZY_FREE] = BIT(SQUEEZY_ASSIGNED) | BIT(SQUEEZY_UNPLUGGING),
	[SQUEEZY_ASSIGNED] = BIT(SQUEEZY_DRAINING),
	[SQUEEZY_DRAINING] = BIT(SQUEEZY_FREE) | BIT(SQUEEZY_QUARANTINED),
	[SQUEEZY_QUARANTINED] = BIT(SQUEEZY_DRAINING),
	[SQUEEZY_UNPLUGGING] = BIT(SQUEEZY_UNPLUGGED) | BIT(SQUEEZY_FREE),
	[SQUEEZY_UNPLUGGED] = BIT(SQUEEZY_PLUGGING),
	[SQUEEZY_PLUGGING] = BIT(SQUEEZY_FREE) | BIT(SQUEEZY_UNPLUGGED),
};

/**
 * squeezy_may_change - is this a step of the state machine?
 * @from: the state now
 * @to: the state next
 */
bool squeezy_may_change(enum squeezy_state from, enum squeezy_state to)
{
	return squeezy_next_states[from] & BIT(to);
}

/* Take one step of the state machine. */
static void squeezy_set_state(struct squeezy_partition *p,
			      enum squeezy_state to)
{
	lockdep_assert_held(&p->lock);
	WARN_ON_ONCE(!squeezy_may_change(p->state, to));

	trace_squeezy_state(p->number, squeezy_state_names[p->state],
			    squeezy_state_names[to], p->users);
	WRITE_ONCE(p->state, to);
}

/**
 * squeezy_change_state - take one step if the partition is where it starts
 * @p: the partition
 * @from: the state it has to be in
 * @to: the state next
 *
 * Return: true if the step was taken.
 */
bool squeezy_change_state(struct squeezy_partition *p, enum squeezy_state from,
			  enum squeezy_state to)
{
	bool changed;

	spin_lock(&p->lock);
	changed = p->state == from;
	if (changed)
		squeezy_set_state(p, to);
	spin_unlock(&p->lock);
	return changed;
}

/**
 * squeezy_try_assign - take a free partition
 * @number: this one, or PR_SQUEEZY_ANY
 *
 * Return: the partition with one user, or NULL if none is free.
 */
struct squeezy_partition *squeezy_try_assign(int number)
{
	struct squeezy_partition *p;

	squeezy_for_each_partition(p) {
		bool taken = false;

		if (number != PR_SQUEEZY_ANY && number != p->number)
			continue;

		spin_lock(&p->lock);
		if (p->state == SQUEEZY_FREE) {
			WARN_ON_ONCE(p->users);
			p->users = 1;
			squeezy_set_state(p, SQUEEZY_ASSIGNED);
			taken = true;
		}
		spin_unlock(&p->lock);
		if (taken) {
			squeezy_count(SQUEEZY_ASSIGNMENTS, 1);
			return p;
		}
	}
	return NULL;
}

/**
 * squeezy_get - hold an assigned partition
 * @p: the partition
 *
 * Return: true if it is assigned, and stays so until the caller lets go of it.
 */
bool squeezy_get(struct squeezy_partition *p)
{
	bool assigned;

	spin_lock(&p->lock);
	assigned = p->state == SQUEEZY_ASSIGNED;
	if (assigned)
		p->users++;
	spin_unlock(&p->lock);
	return assigned;
}

/**
 * squeezy_leave - let go of an assigned partition
 * @p: the partition
 *
 * Callers above drain.c use squeezy_put(), which has the partition drained.
 *
 * Return: true for the last user, who has to have the partition drained.
 */
bool squeezy_leave(struct squeezy_partition *p)
{
	bool last;

	spin_lock(&p->lock);
	WARN_ON_ONCE(p->state != SQUEEZY_ASSIGNED || !p->users);
	last = !--p->users;
	if (last)
		squeezy_set_state(p, SQUEEZY_DRAINING);
	spin_unlock(&p->lock);
	return last;
}

/**
 * squeezy_wait_and_assign - take a partition as soon as one is free
 * @number: this one, or PR_SQUEEZY_ANY
 * @timeout: how long to wait, in jiffies; 0 not to wait
 * @p: where to put the partition
 *
 * Return: 0, -EAGAIN if none is free and @timeout is 0, -ETIMEDOUT, -EINTR.
 */
int squeezy_wait_and_assign(int number, long timeout,
			    struct squeezy_partition **p)
{
	long left;

	*p = squeezy_try_assign(number);
	if (*p)
		return 0;
	if (!timeout)
		return -EAGAIN;

	squeezy_count(SQUEEZY_WAITS, 1);
	left = wait_event_interruptible_timeout(squeezy_waiters,
						(*p = squeezy_try_assign(number)),
						timeout);
	if (*p)
		return 0;
	if (left < 0)
		return -EINTR;
	squeezy_count(SQUEEZY_WAIT_TIMEOUTS, 1);
	return -ETIMEDOUT;
}

/**
 * squeezy_enter_free - a partition has become free
 * @p: the partition, populating, draining, unplugging or plugging
 *
 * Wakes who waits for one. The host may want it back: whoever was not called by the
 * driver tells it.
 */
void squeezy_enter_free(struct squeezy_partition *p)
{
	lockdep_assert_held(&squeezy_mutex);

	spin_lock(&p->lock);
	squeezy_set_state(p, SQUEEZY_FREE);
	spin_unlock(&p->lock);
	wake_up_all(&squeezy_waiters);
}

/**
 * squeezy_count_states - how many partitions are in each state
 * @counts: SQUEEZY_NR_STATES numbers to fill in
 *
 * Return: how many hold memory of the host's, or are about to.
 */
unsigned int squeezy_count_states(unsigned int *counts)
{
	struct squeezy_partition *p;

	memset(counts, 0, SQUEEZY_NR_STATES * sizeof(*counts));
	squeezy_for_each_partition(p)
		counts[READ_ONCE(p->state)]++;

	return squeezy_layout.nr - counts[SQUEEZY_ABSENT] -
	       counts[SQUEEZY_UNPLUGGED];
}
