// SPDX-License-Identifier: GPL-2.0-only
/*
 * Kill inside a full partition, and not inside one when it would not help.
 */
#include <linux/mm.h>
#include <linux/oom.h>
#include <linux/sched/mm.h>
#include <linux/sched/signal.h>

#include "partition.h"

/* The partition that killing @task would bring memory to, or NULL. */
static struct squeezy_partition *squeezy_task_partition(struct task_struct *task)
{
	struct squeezy_partition *p = NULL;
	struct task_struct *t;

	t = find_lock_task_mm(task);
	if (t) {
		p = t->mm->squeezy;
		task_unlock(t);
	} else if (tsk_is_oom_victim(task)) {
		p = READ_ONCE(task->signal->oom_mm)->squeezy;
	}
	return p;
}

/**
 * __squeezy_oom_eligible - may this task be killed, or be waited for?
 * @oc: what memory is wanted
 * @task: any thread of a process
 *
 * A full partition only kills its own. When ordinary memory is wanted, a victim
 * in a partition brings next to none of it, and nobody should wait for that.
 */
bool __squeezy_oom_eligible(struct oom_control *oc, struct task_struct *task)
{
	struct squeezy_partition *p = squeezy_task_partition(task);

	if (oc->partition)
		return p == oc->partition;
	return !(p && tsk_is_oom_victim(task));
}

/**
 * __squeezy_oom_points - how much ordinary memory does killing this task bring?
 * @oc: what memory is wanted
 * @task: any thread of a process
 * @points: its badness
 *
 * Return: @points without the anonymous memory that is in a partition.
 */
long __squeezy_oom_points(struct oom_control *oc, struct task_struct *task,
			  long points)
{
	struct task_struct *t;

	if (oc->partition || points == LONG_MIN)
		return points;

	t = find_lock_task_mm(task);
	if (!t)
		return points;
	if (t->mm->squeezy)
		points -= get_mm_counter(t->mm, MM_ANONPAGES);
	task_unlock(t);
	return points;
}

/**
 * squeezy_managed_pages - pages a partition has in all
 * @p: the partition, plugged
 */
unsigned long squeezy_managed_pages(struct squeezy_partition *p)
{
	return zone_managed_pages(&p->zone);
}

/**
 * squeezy_out_of_memory - a partition is full, and reclaim found nothing
 * @p: the partition
 * @gfp: flags of the allocation
 * @order: order of the allocation
 *
 * Return: true if the allocation should be tried again.
 */
bool squeezy_out_of_memory(struct squeezy_partition *p, gfp_t gfp, int order)
{
	struct oom_control oc = {
		.gfp_mask = gfp,
		.order = order,
		.partition = p,
	};
	bool retry;

	/* Somebody else kills, or a victim is about to exit. */
	if (!mutex_trylock(&oom_lock)) {
		schedule_timeout_uninterruptible(1);
		return true;
	}
	retry = partition_out_of_memory(&oc);
	if (oc.chosen && oc.chosen != (void *)-1UL) {
		atomic_long_inc(&p->oom_kills);
		squeezy_count(SQUEEZY_OOM_KILLS, 1);
		pr_warn("squeezy: partition %u of %lu KiB is full: killed a process in it\n",
			p->number,
			squeezy_managed_pages(p) << (PAGE_SHIFT - 10));
	}
	mutex_unlock(&oom_lock);
	if (!retry) {
		/* Every process in it is exempt from the OOM killer. */
		pr_warn("squeezy: partition %u of %lu KiB is full of processes that must not be killed; killing %s (%d) all the same\n",
			p->number,
			squeezy_managed_pages(p) << (PAGE_SHIFT - 10),
			current->comm, task_pid_nr(current));
		force_sig(SIGKILL);
		return true;
	}
	schedule_timeout_killable(1);
	return true;
}
