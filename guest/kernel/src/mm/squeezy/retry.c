// SPDX-License-Identifier: GPL-2.0-only
/*
 * When to try again: the host was busy, or there was no memory for a memory map.
 *
 * Nothing tells us for sure when that is over, and the driver's own timer waits
 * for 50 seconds. Each try may have Linux reclaim memory or kill for it, so they
 * get rarer.
 */
#include <linux/jiffies.h>
#include <linux/lockdep.h>
#include <linux/minmax.h>
#include <linux/workqueue.h>

#include "core.h"
#include "device.h"
#include "retry.h"

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
	squeezy_device_kick();
	mutex_unlock(&squeezy_mutex);
}

static DECLARE_DELAYED_WORK(squeezy_retry, squeezy_retry_fn);

/**
 * squeezy_back_off - try again, later than the last time
 * @rc: how the last try ended; only -ETXTBSY and -ENOMEM are worth another
 */
void squeezy_back_off(int rc)
{
	struct squeezy_backoff *b = &squeezy_backoff;

	lockdep_assert_held(&squeezy_mutex);
	if (rc != -ETXTBSY && rc != -ENOMEM)
		return;
	b->delay = clamp(2 * b->delay, SQUEEZY_RETRY_MIN, SQUEEZY_RETRY_MAX);
	if (rc == -ENOMEM)
		b->populate_after = jiffies + b->delay;
	mod_delayed_work(system_wq, &squeezy_retry, b->delay);
}

/**
 * squeezy_stop_backing_off - what has failed has been done
 */
void squeezy_stop_backing_off(void)
{
	lockdep_assert_held(&squeezy_mutex);
	squeezy_backoff.delay = 0;
}

/**
 * squeezy_may_populate - is it time to try to add memory?
 */
bool squeezy_may_populate(void)
{
	lockdep_assert_held(&squeezy_mutex);
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

/**
 * squeezy_cancel_retry - do not call the driver any more
 *
 * Sleeps until a call that is under way has ended.
 */
void squeezy_cancel_retry(void)
{
	cancel_delayed_work_sync(&squeezy_retry);
}
