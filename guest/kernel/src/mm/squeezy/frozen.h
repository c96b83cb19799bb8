/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef _MM_SQUEEZY_FROZEN_H
#define _MM_SQUEEZY_FROZEN_H

#include "core.h"

struct mm_struct;
struct task_struct;

/**
 * struct squeezy_thread - a thread of an instance
 * @task: the thread, held
 * @mm: its address space, held
 */
struct squeezy_thread {
	struct task_struct *task;
	struct mm_struct *mm;
};

/**
 * struct squeezy_instance - all threads of an instance
 * @p: its partition, held
 * @threads: by address space, once they are sorted
 * @nr: how many
 */
struct squeezy_instance {
	struct squeezy_partition *p;
	struct squeezy_thread *threads;
	unsigned int nr;
};

int squeezy_refuse_doom(struct squeezy_partition *p, const char *reason);
int squeezy_check_frozen(struct squeezy_instance *instance);
int squeezy_await_foreigners(struct squeezy_instance *instance);
void squeezy_put_threads(struct squeezy_instance *instance);

#endif /* _MM_SQUEEZY_FROZEN_H */
