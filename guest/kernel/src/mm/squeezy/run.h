/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef _MM_SQUEEZY_RUN_H
#define _MM_SQUEEZY_RUN_H

#include "core.h"

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

/* The partition that is the @i-th of a run; NULL after the last. */
static inline struct squeezy_partition *
squeezy_run_partition(const struct squeezy_run *run, unsigned int i)
{
	return i < run->nr ? squeezy_partitions[run->first + i] : NULL;
}

#define squeezy_for_each_in_run(p, run) \
	for (unsigned int __i = 0; ((p) = squeezy_run_partition(run, __i)); __i++)

struct squeezy_run squeezy_find_run(enum squeezy_state state,
				    unsigned int *next, unsigned int most);
void squeezy_change_run(const struct squeezy_run *run, enum squeezy_state from,
			enum squeezy_state to);
void squeezy_show_run(const struct squeezy_run *run);
void squeezy_hide_run(const struct squeezy_run *run);
int squeezy_request_plug(struct squeezy_run *run);
int squeezy_request_unplug(struct squeezy_run *run);
void squeezy_account_plug(const struct squeezy_run *run, unsigned int done,
			  int rc);
void squeezy_account_unplug(const struct squeezy_run *run, unsigned int done,
			    int rc);

#endif /* _MM_SQUEEZY_RUN_H */
