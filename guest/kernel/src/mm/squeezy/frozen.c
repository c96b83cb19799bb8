// SPDX-License-Identifier: GPL-2.0-only
/*
 * Who is in an instance that is to be doomed: that all its threads are frozen, hold
 * nothing that exit would have to look for in their memory, and are alone in their
 * address spaces.
 */
#define DEBUG	/* pr_debug() says why a partition is not doomed */

#include <linux/cgroup.h>
#include <linux/futex.h>
#include <linux/io_uring_types.h>
#include <linux/mm.h>
#include <linux/percpu_counter.h>
#include <linux/sched/mm.h>
#include <linux/sched/signal.h>
#include <linux/sched/task.h>
#include <linux/slab.h>
#include <linux/sort.h>

#include "core.h"
#include "frozen.h"

/**
 * squeezy_refuse_doom - say why a partition is not doomed
 * @p: the partition
 * @reason: what comes after the colon
 *
 * Return: -EBUSY
 */
int squeezy_refuse_doom(struct squeezy_partition *p, const char *reason)
{
	pr_debug("squeezy: partition %u is not doomed: %s\n", p->number, reason);
	return -EBUSY;
}

static int squeezy_refuse_thread(struct squeezy_partition *p,
				 struct task_struct *task, const char *reason)
{
	pr_debug("squeezy: partition %u is not doomed: %s (%d) %s\n", p->number,
		 task->comm, task_pid_nr(task), reason);
	return -EBUSY;
}

/* The thread is locked. */
static bool squeezy_is_member(struct squeezy_partition *p,
			      const struct task_struct *task)
{
	return task->mm && task->mm->squeezy == p &&
	       !(task->flags & PF_KTHREAD);
}

/* The address space of a thread, held, or NULL if it is in no instance of ours. */
static struct mm_struct *squeezy_member_mm(struct squeezy_partition *p,
					   struct task_struct *task)
{
	struct mm_struct *mm = NULL;

	task_lock(task);
	if (squeezy_is_member(p, task)) {
		mm = task->mm;
		mmget(mm);
	}
	task_unlock(task);
	return mm;
}

static unsigned int squeezy_count_threads(struct squeezy_partition *p)
{
	struct task_struct *g, *t;
	unsigned int nr = 0;

	rcu_read_lock();
	for_each_process_thread(g, t) {
		task_lock(t);
		nr += squeezy_is_member(p, t);
		task_unlock(t);
	}
	rcu_read_unlock();
	return nr;
}

/*
 * Threads that come and go meanwhile are missed, or have gone. They do not stay
 * unnoticed: squeezy_check_mms() has all address spaces and their users accounted for.
 */
static int squeezy_find_threads(struct squeezy_instance *instance)
{
	struct squeezy_partition *p = instance->p;
	const unsigned int max = squeezy_count_threads(p);
	struct task_struct *g, *t;

	if (!max)
		return squeezy_refuse_doom(p, "there is no process in it");
	instance->threads = kvmalloc_array(max, sizeof(*instance->threads),
					   GFP_KERNEL);
	if (!instance->threads)
		return -ENOMEM;

	rcu_read_lock();
	for_each_process_thread(g, t) {
		struct mm_struct *mm;

		if (instance->nr == max)
			goto out;
		mm = squeezy_member_mm(p, t);
		if (!mm)
			continue;
		get_task_struct(t);
		instance->threads[instance->nr].task = t;
		instance->threads[instance->nr].mm = mm;
		instance->nr++;
	}
out:
	rcu_read_unlock();
	return 0;
}

/**
 * squeezy_put_threads - let go of the threads of an instance
 * @instance: the instance, whatever squeezy_check_frozen() has returned for it
 */
void squeezy_put_threads(struct squeezy_instance *instance)
{
	unsigned int i;

	for (i = 0; i < instance->nr; i++) {
		put_task_struct(instance->threads[i].task);
		mmput(instance->threads[i].mm);
	}
	kvfree(instance->threads);
}

/*
 * Only cgroup_mutex, which we hold, keeps a thread in the freezer of its cgroup. One
 * that is only stopped counts as frozen, too, and may go on at any moment, as may one
 * that is traced.
 */
static bool squeezy_is_frozen(struct task_struct *task)
{
	lockdep_assert_held(&cgroup_mutex);

	return cgroup_task_frozen(task) && !READ_ONCE(task->ptrace) &&
	       test_bit(CGRP_FREEZE, &task_dfl_cgroup(task)->flags);
}

/* What the thread has submitted to io_uring; it counts some more in advance. */
static bool squeezy_has_requests(struct task_struct *task)
{
#ifdef CONFIG_IO_URING
	struct io_uring_task *uring = task->io_uring;

	return uring && percpu_counter_sum(&uring->inflight) >
			READ_ONCE(uring->cached_refs);
#else
	return false;
#endif
}

/* What exit could not read, it would not follow. */
static bool squeezy_has_robust_futexes(const struct squeezy_thread *thread)
{
#ifdef CONFIG_FUTEX
	struct robust_list_head __user *list = READ_ONCE(thread->task->robust_list);
	struct robust_list_head head;

#ifdef CONFIG_COMPAT
	if (READ_ONCE(thread->task->compat_robust_list))
		return true;
#endif
	if (!list || access_remote_vm(thread->mm, (unsigned long)list, &head,
				      sizeof(head), 0) != sizeof(head))
		return false;
	return head.list.next != &list->list || head.list_op_pending;
#else
	return false;
#endif
}

/* Whether somebody outside could wait for the end of the thread on its id. */
static bool squeezy_shares_tid(const struct squeezy_thread *thread)
{
	int __user *tid = READ_ONCE(thread->task->clear_child_tid);
	struct vm_area_struct *vma;
	bool shared;

	if (!tid)
		return false;
	mmap_read_lock(thread->mm);
	vma = vma_lookup(thread->mm, (unsigned long)tid);
	shared = vma && (vma->vm_flags & VM_MAYSHARE);
	mmap_read_unlock(thread->mm);
	return shared;
}

static int squeezy_check_thread(struct squeezy_partition *p,
				const struct squeezy_thread *thread)
{
	struct task_struct *task = thread->task;

	if (!squeezy_is_frozen(task))
		return squeezy_refuse_thread(p, task, "is not frozen");
	if (squeezy_has_requests(task))
		return squeezy_refuse_thread(p, task,
					     "has requests in an io_uring");
	if (squeezy_has_robust_futexes(thread))
		return squeezy_refuse_thread(p, task, "holds robust futexes");
	if (squeezy_shares_tid(thread))
		return squeezy_refuse_thread(p, task,
					     "has its thread id in shared memory");
	return 0;
}

static int squeezy_compare_mms(const void *a, const void *b)
{
	const struct squeezy_thread *x = a, *y = b;

	return x->mm < y->mm ? -1 : x->mm > y->mm;
}

/* The first thread behind @i in another address space. */
static unsigned int squeezy_next_mm(const struct squeezy_instance *instance,
				    unsigned int i)
{
	const struct mm_struct *mm = instance->threads[i].mm;

	while (i < instance->nr && instance->threads[i].mm == mm)
		i++;
	return i;
}

/* Are the threads all who use the address spaces, and these all that there are? */
static int squeezy_check_mms(struct squeezy_instance *instance)
{
	struct squeezy_partition *p = instance->p;
	unsigned int i, next, mms = 0;

	sort(instance->threads, instance->nr, sizeof(*instance->threads),
	     squeezy_compare_mms, NULL);
	for (i = 0; i < instance->nr; i = next) {
		next = squeezy_next_mm(instance, i);
		/* A user for each thread, and the one that we hold for it. */
		if (atomic_read(&instance->threads[i].mm->mm_users) !=
		    2 * (next - i))
			return squeezy_refuse_thread(p, instance->threads[i].task,
						     "is not alone in its address space");
		mms++;
	}
	/* One is the caller. */
	if (READ_ONCE(p->users) != mms + 1)
		return squeezy_refuse_doom(p, "somebody else holds it");
	return 0;
}

/**
 * squeezy_check_frozen - is an instance frozen, and alone in its address spaces?
 * @instance: the instance, of which only its partition is known
 *
 * It stays so as long as the caller holds cgroup_mutex, but that it may be killed.
 *
 * Return: 0 with the threads held, -EBUSY, -ENOMEM.
 */
int squeezy_check_frozen(struct squeezy_instance *instance)
{
	unsigned int i;
	int rc;

	lockdep_assert_held(&cgroup_mutex);

	rc = squeezy_find_threads(instance);
	for (i = 0; i < instance->nr && !rc; i++)
		rc = squeezy_check_thread(instance->p, &instance->threads[i]);
	return rc ?: squeezy_check_mms(instance);
}

/**
 * squeezy_await_foreigners - wait for who looks into an instance from outside
 * @instance: the instance, with its threads
 *
 * Who has looked whether the partition is doomed before it was, and holds the lock
 * of the address space, has references by the time that it lets go of it.
 *
 * Return: 0, -EINTR if the caller is being killed.
 */
int squeezy_await_foreigners(struct squeezy_instance *instance)
{
	unsigned int i;

	for (i = 0; i < instance->nr; i = squeezy_next_mm(instance, i)) {
		if (mmap_write_lock_killable(instance->threads[i].mm))
			return -EINTR;
		mmap_write_unlock(instance->threads[i].mm);
	}
	return 0;
}
