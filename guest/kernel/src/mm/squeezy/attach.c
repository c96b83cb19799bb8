// SPDX-License-Identifier: GPL-2.0-only
/*
 * Attach processes to partitions: prctl(PR_SQUEEZY), fork, execve and exit.
 *
 * An assignment is pending on the task until its next successful execve, whose
 * new mm enters the partition: a vfork child can never assign its parent, and
 * an mm is in one partition for life.
 */
#include <linux/capability.h>
#include <linux/cgroup.h>
#include <linux/jiffies.h>
#include <linux/mm.h>
#include <linux/ptrace.h>
#include <linux/sched/mm.h>
#include <linux/sched/task.h>

#include "core.h"
#include "drain.h"

/**
 * __squeezy_mm_init - decide which partition a new address space is in
 * @mm: the address space, not yet used by anybody
 * @task: the task it is for: a child's own with fork, current with execve
 */
void __squeezy_mm_init(struct mm_struct *mm, struct task_struct *task)
{
	struct squeezy_partition *p = NULL;

	if (task == current && current->squeezy_pending)
		p = current->squeezy_pending;
	else if (current->mm)
		p = current->mm->squeezy;

	/* Whoever we have it from holds it, so it is assigned. */
	if (p && WARN_ON_ONCE(!squeezy_get(p)))
		p = NULL;
	mm->squeezy = p;
}

/**
 * __squeezy_mm_exit - an address space has let go of all its memory
 * @mm: the address space, after exit_mmap(), or one that was never used
 */
void __squeezy_mm_exit(struct mm_struct *mm)
{
	struct squeezy_partition *p = mm->squeezy;

	if (!p)
		return;
	mm->squeezy = NULL;
	squeezy_put(p);
}

/**
 * __squeezy_drop_pending - forget an assignment
 * @task: current, whose execve consumed it or that exits
 */
void __squeezy_drop_pending(struct task_struct *task)
{
	struct squeezy_partition *p = task->squeezy_pending;

	if (!p)
		return;
	task->squeezy_pending = NULL;
	squeezy_put(p);
}

static int squeezy_prctl_assign(unsigned long number, unsigned long timeout_ms)
{
	struct squeezy_partition *p;
	long timeout;
	int rc;

	if ((int)number != PR_SQUEEZY_ANY && number >= squeezy_layout.nr)
		return -EINVAL;
	if ((int)timeout_ms != PR_SQUEEZY_FOREVER && timeout_ms > INT_MAX)
		return -EINVAL;
	if (!capable(CAP_SYS_RESOURCE))
		return -EPERM;
	if (current->mm->squeezy || current->squeezy_pending)
		return -EBUSY;

	if ((int)timeout_ms == PR_SQUEEZY_FOREVER)
		timeout = MAX_SCHEDULE_TIMEOUT;
	else	/* Of the first jiffy, part has passed. */
		timeout = msecs_to_jiffies(timeout_ms) + !!timeout_ms;
	rc = squeezy_wait_and_assign(number, timeout, &p);
	if (rc)
		return rc;
	current->squeezy_pending = p;
	return p->number;
}

/* The address space of a process, held, whose partition it cannot change. */
static struct mm_struct *squeezy_access(unsigned long pid)
{
	struct task_struct *task;
	struct mm_struct *mm;

	if (pid > INT_MAX)
		return ERR_PTR(-ESRCH);
	task = find_get_task_by_vpid(pid);
	if (!task)
		return ERR_PTR(-ESRCH);
	mm = mm_access(task, PTRACE_MODE_READ_FSCREDS);
	put_task_struct(task);
	return mm;
}

/* An address space in the partition is held, and holds it. */
static int squeezy_join(struct squeezy_partition *p)
{
	int rc = p->number;

	/* Whoever dooms it holds this, too: it counts us, or we see that it is doomed. */
	cgroup_lock();
	if (p->doomed)
		rc = -EBUSY;
	else if (WARN_ON_ONCE(!squeezy_get(p)))
		rc = -ENODATA;
	else
		current->squeezy_pending = p;
	cgroup_unlock();
	return rc;
}

static int squeezy_prctl_join(unsigned long pid)
{
	struct mm_struct *mm;
	int rc;

	if (!capable(CAP_SYS_RESOURCE))
		return -EPERM;
	if (current->mm->squeezy || current->squeezy_pending)
		return -EBUSY;

	mm = squeezy_access(pid);
	if (IS_ERR(mm))
		return PTR_ERR(mm);
	rc = mm->squeezy ? squeezy_join(mm->squeezy) : -ENODATA;
	mmput(mm);
	return rc;
}

static int squeezy_prctl_cancel(void)
{
	if (!current->squeezy_pending)
		return -ENODATA;
	__squeezy_drop_pending(current);
	return 0;
}

static int squeezy_prctl_get(unsigned long pid)
{
	struct mm_struct *mm;
	int rc = -ENODATA;

	if (!pid) {
		if (current->mm->squeezy)
			rc = current->mm->squeezy->number;
		return rc;
	}
	mm = squeezy_access(pid);
	if (IS_ERR(mm))
		return PTR_ERR(mm);
	if (mm->squeezy)
		rc = mm->squeezy->number;
	mmput(mm);
	return rc;
}

/**
 * squeezy_prctl - prctl(PR_SQUEEZY)
 * @op: PR_SQUEEZY_ASSIGN, PR_SQUEEZY_CANCEL, PR_SQUEEZY_GET or PR_SQUEEZY_JOIN
 * @a: the operation's first argument
 * @b: the operation's second argument
 * @c: reserved, 0
 *
 * Return: see include/uapi/linux/squeezy.h and docs/abi.md.
 */
int squeezy_prctl(unsigned long op, unsigned long a, unsigned long b,
		  unsigned long c)
{
	if (!squeezy_enabled())
		return -ENODEV;
	if (c)
		return -EINVAL;

	switch (op) {
	case PR_SQUEEZY_ASSIGN:
		return squeezy_prctl_assign(a, b);
	case PR_SQUEEZY_CANCEL:
		return a || b ? -EINVAL : squeezy_prctl_cancel();
	case PR_SQUEEZY_GET:
		return b ? -EINVAL : squeezy_prctl_get(a);
	case PR_SQUEEZY_JOIN:
		return b ? -EINVAL : squeezy_prctl_join(a);
	default:
		return -EINVAL;
	}
}
