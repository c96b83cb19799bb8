// SPDX-License-Identifier: GPL-2.0-only
/*
 * Out of memory: in a partition, and beside partitions.
 *
 * A full partition kills one of its own processes. What that brings is memory of
 * the partition, so such a victim (MMF_OOM_PARTITION) means nothing to those who
 * lack ordinary memory: they do not wait for it, and it gets none of the reserves.
 * Otherwise an instance that is always about to kill would keep everybody else
 * from ever getting memory.
 *
 * When ordinary memory is short, a process in a partition is as bad as what its
 * cgroup has of it: most of that is in pipes, sockets and other things of the
 * kernel, which no address space shows. One is killed at a time. An instance lets
 * go of this memory when it closes its files, after its address space is gone, and
 * is waited for that long. Starved of processors, it takes its time; one that is
 * stuck is given up, once and for all.
 */
#include <linux/jiffies.h>
#include <linux/memcontrol.h>
#include <linux/mm.h>
#include <linux/oom.h>
#include <linux/page_counter.h>
#include <linux/ratelimit.h>
#include <linux/rcupdate.h>
#include <linux/sched/mm.h>
#include <linux/sched/signal.h>
#include <linux/sched/stat.h>

#include "core.h"
#include "counters.h"
#include "oom.h"
#include "zone.h"

/* The wait of the next kill for victims that close their files; under oom_lock. */
static struct squeezy_closing closing;

/* How long a victim is waited for before memory is looked for again. */
#define SQUEEZY_VICTIM_JIFFIES	(HZ / 10)

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
		p = READ_ONCE(task->signal->oom_mm->squeezy);
	}
	return p;
}

/* Pages of its partition that an address space holds. */
static unsigned long squeezy_confined_pages(struct mm_struct *mm)
{
	if (!mm->squeezy)
		return 0;
	return get_mm_counter(mm, MM_ANONPAGES) +
	       get_mm_counter(mm, MM_SHMEMPAGES);
}

/*
 * Pages of ordinary memory that the cgroup of a task holds, but for page cache:
 * what is left of that now cannot be reclaimed, and seldom is the task's alone.
 */
static unsigned long squeezy_charged_pages(struct task_struct *task)
{
	unsigned long pages = 0, file, shmem;
	struct mem_cgroup *memcg;

	rcu_read_lock();
	memcg = mem_cgroup_from_task(task);
	if (memcg && !mem_cgroup_is_root(memcg)) {
		pages = page_counter_read(&memcg->memory);
		file = memcg_page_state(memcg, NR_FILE_PAGES);
		shmem = memcg_page_state(memcg, NR_SHMEM);
		if (file > shmem)
			pages -= min(pages, file - shmem);
	}
	rcu_read_unlock();
	return pages;
}

/* Is a process on its way out, with something left to let go of? */
static bool squeezy_is_exiting(struct task_struct *task)
{
	if (task->exit_state && thread_group_empty(task))
		return false;
	return (READ_ONCE(task->signal->flags) & SIGNAL_GROUP_EXIT) ||
	       (READ_ONCE(task->flags) & PF_EXITING);
}

/**
 * __squeezy_oom_confined - was this task killed for its partition's memory?
 * @task: any thread of a process
 */
bool __squeezy_oom_confined(struct task_struct *task)
{
	return tsk_is_oom_victim(task) &&
	       test_bit(MMF_OOM_PARTITION, &task->signal->oom_mm->flags);
}

/**
 * __squeezy_oom_begin - the OOM killer was called for ordinary memory
 * @oc: what memory is wanted
 *
 * A victim of a partition that needs ordinary memory to exit, when there is none,
 * becomes an ordinary victim: it gets reserves, and is waited for.
 *
 * Return: true if the caller is such a victim and should try again.
 */
bool __squeezy_oom_begin(struct oom_control *oc)
{
	lockdep_assert_held(&oom_lock);

	if (oc->memcg)
		return false;
	if (__squeezy_oom_confined(current)) {
		clear_bit(MMF_OOM_PARTITION, &current->signal->oom_mm->flags);
		return true;
	}
	/* For squeezy_charged_pages(). */
	mem_cgroup_flush_stats(NULL);
	return false;
}

/*
 * A victim with this address space still exits. Return: true to wait for it, as
 * long as it may yet close files; one that is stuck is given up, for good.
 */
static bool squeezy_wait_or_give_up(struct mm_struct *mm)
{
	if (!test_bit(MMF_OOM_SKIP, &mm->flags) ||
	    test_bit(MMF_OOM_GIVEN_UP, &mm->flags))
		return false;
	if (closing.waited < SQUEEZY_STUCK_JIFFIES)
		return true;
	set_bit(MMF_OOM_GIVEN_UP, &mm->flags);
	return false;
}

/**
 * __squeezy_oom_eligible - may this task be killed, or be waited for?
 * @oc: what memory is wanted
 * @task: any thread of a process
 *
 * A full partition only kills its own. A cgroup waits for all of its victims,
 * those of partitions included: it only keeps itself waiting.
 */
bool __squeezy_oom_eligible(struct oom_control *oc, struct task_struct *task)
{
	if (oc->partition)
		return squeezy_task_partition(task) == oc->partition;
	if (oc->memcg || !squeezy_is_exiting(task))
		return true;

	oc->dying = true;
	if (__squeezy_oom_confined(task))
		return false;
	if (tsk_is_oom_victim(task) &&
	    squeezy_wait_or_give_up(task->signal->oom_mm))
		oc->exiting_victim = true;
	return true;
}

/**
 * __squeezy_oom_points - how much memory does killing this task bring?
 * @oc: what memory is wanted
 * @task: any thread of a process
 * @points: its badness
 *
 * Return: for a partition, the pages of it that the task holds; for ordinary
 * memory, those outside of partitions; both adjusted as @points is.
 */
long __squeezy_oom_points(struct oom_control *oc, struct task_struct *task,
			  long points)
{
	struct task_struct *t;

	if (points == LONG_MIN)
		return points;

	t = find_lock_task_mm(task);
	if (!t)
		return points;
	if (oc->partition)
		points = squeezy_confined_pages(t->mm) +
			 t->signal->oom_score_adj *
			 (long)(oc->totalpages / 1000);
	else if (t->mm->squeezy)
		points += squeezy_charged_pages(t) -
			  squeezy_confined_pages(t->mm);
	task_unlock(t);
	return points;
}

/**
 * squeezy_may_wait - wait once more for those who die, when nobody else can be killed?
 * @wait: what is known of this wait; asked for all the time while memory is short
 * @now: in jiffies
 * @exits: tasks that have ended since boot
 *
 * That somebody takes long to die is no reason to panic, be there hundreds of them.
 * That none has ended for long is one: whoever is to let go of memory is stuck.
 *
 * Return: true unless @exits has stood still for SQUEEZY_STUCK_JIFFIES of an
 * uninterrupted wait.
 */
bool squeezy_may_wait(struct squeezy_wait *wait, unsigned long now,
		      unsigned long exits)
{
	if (time_after(now, wait->last + HZ) || exits != wait->exits)
		wait->since = now;
	wait->last = now;
	wait->exits = exits;
	return time_before(now, wait->since + SQUEEZY_STUCK_JIFFIES);
}

/* Both are counted under the tasklist lock; a sum that is off by a few does no harm. */
static unsigned long squeezy_exits(void)
{
	return READ_ONCE(total_forks) - READ_ONCE(nr_threads);
}

/**
 * squeezy_count_wait - somebody waits for victims that close their files
 * @closing: the wait
 * @now: in jiffies
 *
 * Asked for all the time while memory is short. A pause is none of the wait: the
 * processors of the VM did not run.
 */
void squeezy_count_wait(struct squeezy_closing *closing, unsigned long now)
{
	closing->waited += min(now - closing->last, HZ / 10UL);
	closing->last = now;
}

/**
 * __squeezy_oom_selected - wait for those who are dying rather than kill or panic
 * @oc: what memory is wanted; its victim is chosen, or nobody
 */
void __squeezy_oom_selected(struct oom_control *oc)
{
	static struct squeezy_wait wait = { .last = INITIAL_JIFFIES - 2 * HZ };

	lockdep_assert_held(&oom_lock);

	/* An order of -1 is SysRq's, which asks for a kill whatever happens. */
	if (oc->partition || oc->memcg || oc->order == -1 ||
	    oc->chosen == (void *)-1UL)
		return;

	if (!oc->chosen) {
		if (oc->dying &&
		    squeezy_may_wait(&wait, jiffies, squeezy_exits()))
			oc->chosen = (void *)-1UL;
	} else if (oc->exiting_victim) {
		squeezy_count_wait(&closing, jiffies);
		put_task_struct(oc->chosen);
		oc->chosen = (void *)-1UL;
	} else {
		closing.waited = 0;
	}
}

/**
 * squeezy_oom_victim - a process is about to be killed for its partition
 * @p: the partition
 * @task: any thread of the process
 *
 * Return: false if it is not in the partition, or dies already.
 */
bool squeezy_oom_victim(struct squeezy_partition *p, struct task_struct *task)
{
	struct task_struct *t;
	bool inside;

	if (tsk_is_oom_victim(task))
		return false;
	t = find_lock_task_mm(task);
	if (!t)
		return false;
	inside = t->mm->squeezy == p;
	if (inside)
		set_bit(MMF_OOM_PARTITION, &t->mm->flags);
	task_unlock(t);
	if (inside) {
		atomic_long_inc(&p->oom_kills);
		squeezy_count(SQUEEZY_OOM_KILLS, 1);
	}
	return inside;
}

/**
 * __squeezy_oom_log - is the kill of this address space worth a line in the log?
 * @mm: the address space, of a victim that is locked
 *
 * An instance that is killed in its partition again and again must not fill it.
 */
bool __squeezy_oom_log(struct mm_struct *mm)
{
	return !test_bit(MMF_OOM_PARTITION, &mm->flags) ||
	       __ratelimit(&mm->squeezy->oom_log);
}

/* Wait for what a victim frees. */
static void squeezy_await_victim(struct squeezy_partition *p)
{
	const unsigned long end = jiffies + SQUEEZY_VICTIM_JIFFIES;

	do {
		schedule_timeout_killable(1);
		squeezy_flush_cpus(p);
	} while (!squeezy_pages_available(p) &&
		 !fatal_signal_pending(current) && time_before(jiffies, end));
}

/**
 * squeezy_out_of_memory - a partition is full, and reclaim found too little
 * @p: the partition, of which current is a member, or about to become one
 * @gfp: flags of the allocation
 * @order: order of the allocation
 *
 * Kills a process of the partition, unless one dies already, and waits a moment
 * for what that brings.
 */
void squeezy_out_of_memory(struct squeezy_partition *p, gfp_t gfp, int order)
{
	const unsigned long kib = squeezy_managed_pages(p) << (PAGE_SHIFT - 10);
	struct oom_control oc = {
		.gfp_mask = gfp,
		.order = order,
		.partition = p,
	};
	bool found;

	/* Somebody else kills. */
	if (!mutex_trylock(&oom_lock)) {
		schedule_timeout_killable(1);
		return;
	}
	found = partition_out_of_memory(&oc);
	mutex_unlock(&oom_lock);
	if (!found) {
		/* Every process in it is exempt from the OOM killer. */
		if (__ratelimit(&p->oom_log))
			pr_warn("squeezy: partition %u of %lu KiB is full of processes that must not be killed; killing %s (%d) all the same\n",
				p->number, kib, current->comm,
				task_pid_nr(current));
		force_sig(SIGKILL);
		return;
	}
	if (oc.chosen != (void *)-1UL && __ratelimit(&p->oom_log))
		pr_warn("squeezy: partition %u of %lu KiB is full: killed a process in it\n",
			p->number, kib);
	squeezy_await_victim(p);
}
