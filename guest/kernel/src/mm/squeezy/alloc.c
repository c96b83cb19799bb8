// SPDX-License-Identifier: GPL-2.0-only
/*
 * Allocate the memory of instances from partitions.
 *
 * When a partition is full, what per-CPU lists and reclaim can give back is got
 * first; then a process of this partition is killed.
 */
#include <linux/gfp.h>
#include <linux/jiffies.h>
#include <linux/mm.h>
#include <linux/oom.h>
#include <linux/sched/mm.h>
#include <linux/sched/signal.h>
#include <linux/swap.h>

#include "../internal.h"
#include "batch.h"
#include "core.h"
#include "drain.h"
#include "oom.h"
#include "page.h"
#include "reclaim.h"
#include "zone.h"

static bool squeezy_is_dying(void)
{
	return tsk_is_oom_victim(current) || fatal_signal_pending(current);
}

/*
 * The partition has no free page. @vma is where one is wanted, or NULL for a file.
 * One task at a time looks for some: what it does serves those who wait for it, and
 * costs others no more if they are many.
 *
 * Who is dying gets none: a fault that fails is as good as any other to end with,
 * and a page from elsewhere could stay in an address space that lives on.
 */
static struct folio *squeezy_alloc_slow(struct squeezy_partition *p, gfp_t gfp,
					const struct vm_area_struct *vma)
{
	/* Who joins a full one is as one inside: its arguments are on their way there. */
	const bool member = (current->mm && current->mm->squeezy == p) ||
			    current->squeezy_pending == p;
	const bool droppable = vma && (vma->vm_flags & VM_DROPPABLE);
	unsigned int batches, tries = 0, interferences = 0;
	struct folio *folio = NULL;
	unsigned long end = 0;
	bool interfered;

	if (!gfpflags_allow_blocking(gfp) || squeezy_is_dying() ||
	    mutex_lock_killable(&p->reclaim_lock))
		return NULL;

	while (!squeezy_is_dying()) {
		batches = squeezy_wait_for_batch(p);
		squeezy_flush_cpus(p);
		folio = squeezy_alloc_folio(p, gfp, 0);
		if (folio || (gfp & __GFP_NORETRY))
			break;
		/* What comes and goes while reclaim looks for more has not interfered. */
		interfered = squeezy_batch_interfered(p, batches);
		/* Others may take what we find, but not for ever. */
		if (tries++ < MAX_RECLAIM_RETRIES && squeezy_reclaim(p))
			continue;
		/* Nor is a host that takes memory again and again waited for so. */
		if (interfered && !interferences++)
			end = jiffies + HZ;
		if (interfered && time_before(jiffies, end))
			continue;
		/* Reclaim may take long enough for a report to come, which is waited for. */
		squeezy_wait_for_batch(p);
		folio = squeezy_alloc_folio(p, gfp, 0);
		if (folio || !member || droppable)
			break;
		squeezy_out_of_memory(p, gfp, 0);
		tries = 0;
		interferences = 0;
	}
	mutex_unlock(&p->reclaim_lock);
	return folio;
}

/**
 * squeezy_vma_alloc_folio - allocate private memory for a virtual memory area
 * @gfp: GFP flags
 * @order: order of the folio
 * @vma: the area, which decides by its mm where the memory comes from
 *
 * This is vma_alloc_folio() on a machine with partitions.
 */
struct folio *squeezy_vma_alloc_folio(gfp_t gfp, unsigned int order,
				      struct vm_area_struct *vma)
{
	struct squeezy_partition *p = mm_squeezy(vma->vm_mm);
	struct folio *folio;

	if (!p)
		return folio_alloc_noprof(gfp, order);

	folio = squeezy_alloc_folio(p, gfp, order);
	if (folio || order)
		return folio;
	return squeezy_alloc_slow(p, gfp, vma);
}
EXPORT_SYMBOL_GPL(squeezy_vma_alloc_folio);

/**
 * squeezy_shmem_alloc - allocate memory for a file that has no other place
 * @gfp: GFP flags
 * @order: order of the folio
 *
 * Files of tmpfs, memfds, shared anonymous memory and SysV segments have no
 * disk to be written to: they are memory of the process that fills them, by a
 * fault or by a system call. @current holds its own mm_users.
 */
struct folio *squeezy_shmem_alloc(gfp_t gfp, unsigned int order)
{
	struct squeezy_partition *p;
	struct folio *folio;

	p = current->mm ? mm_squeezy(current->mm) : NULL;
	if (!p)
		return folio_alloc_noprof(gfp, order);

	folio = squeezy_alloc_folio(p, gfp, order);
	if (folio || order)
		return folio;
	return squeezy_alloc_slow(p, gfp, NULL);
}

/**
 * squeezy_collapse_alloc - allocate a huge page to collapse confined memory into
 * @mm: whose memory is collapsed; it has a partition
 * @gfp: GFP flags
 *
 * khugepaged only holds mm_count here; see I1 in core.h for why that is
 * not enough. What is doomed stays as it is.
 */
struct folio *squeezy_collapse_alloc(struct mm_struct *mm, gfp_t gfp)
{
	struct folio *folio;

	if (!mmget_not_zero(mm))
		return NULL;
	folio = READ_ONCE(mm->squeezy->doomed) ? NULL :
		squeezy_alloc_folio(mm->squeezy, gfp, HPAGE_PMD_ORDER);
	mmput_async(mm);
	return folio;
}

/**
 * squeezy_migration_target - allocate a folio to move a partition's folio to
 * @src: the folio
 * @gfp: GFP flags
 * @order: its order
 *
 * Memory of an assigned partition stays inside; what an unused one still holds
 * moves out. What is doomed stays where it is: it may be gone.
 */
struct folio *squeezy_migration_target(struct folio *src, gfp_t gfp,
				       unsigned int order)
{
	struct squeezy_partition *p = squeezy_folio_partition(src);
	struct folio *folio;

	if (READ_ONCE(p->doomed))
		return NULL;
	if (!squeezy_get(p))
		return __folio_alloc(gfp, order, folio_nid(src), NULL);
	folio = squeezy_alloc_folio(p, gfp, order);
	squeezy_put(p);
	return folio;
}
