/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef _MM_SQUEEZY_OOM_H
#define _MM_SQUEEZY_OOM_H

#include <linux/jiffies.h>

#include "core.h"

/*
 * How long the next kill waits for victims, and how long nobody of those who die
 * may end when there is nobody else to kill.
 */
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

/**
 * struct squeezy_closing - a wait for victims that close their files
 * @waited: for how many jiffies since the last kill
 * @last: when somebody waited last, in jiffies
 */
struct squeezy_closing {
	unsigned long waited;
	unsigned long last;
};

bool squeezy_may_wait(struct squeezy_wait *wait, unsigned long now,
		      unsigned long exits);
void squeezy_count_wait(struct squeezy_closing *closing, unsigned long now);
void squeezy_out_of_memory(struct squeezy_partition *p, gfp_t gfp, int order);

#endif /* _MM_SQUEEZY_OOM_H */
