// SPDX-License-Identifier: GPL-2.0-only
/*
 * Doom a frozen instance, so that the host may discard its memory.
 *
 * The host can discard the whole slot of a partition while the VM is paused. When
 * the VM runs again, the instance has to be killed before anything reads what is
 * now zero. User space cannot promise that: it does not see who else has a page of
 * the instance in hand, and anybody may thaw it. So the partition is doomed while
 * the VM still runs. From then on, to leave the freezer is to be killed, and
 * nobody else gets at the memory.
 *
 * WHO COULD READ THE MEMORY BETWEEN THE HOST'S DISCARD AND THE KILL
 *
 * Looked for when a partition is doomed; if there is any, it is not:
 *
 *  - pages in pipes (vmsplice, tee, splice), data of sockets that may be sent again
 *    (MSG_ZEROCOPY, sendfile), direct I/O, asynchronous or of FUSE, long-term pins,
 *    registered buffers of io_uring, pages that are being written back or moved:
 *    they have a reference that no mapping and no page cache explains
 *  - memory shared with a process outside: a mapping of the file that is not the
 *    partition's
 *  - requests of io_uring that will look at the memory only when they go on, as a
 *    write to a full pipe does: threads count them
 *  - a kernel thread that uses the address space, vhost's for instance: it is a
 *    user of it that is not one of its threads
 *  - a process that is not frozen, be it in another cgroup, dumping core, waiting
 *    for a seccomp supervisor, or on its way in by execve, after PR_SQUEEZY_JOIN for
 *    instance, or out by exit
 *  - robust futexes that are held: exit would follow the list through zeros, and
 *    who shares them would never learn that their owner has died
 *
 * Kept out while it is doomed:
 *
 *  - new processes: PR_SQUEEZY_JOIN fails
 *  - the instance: who leaves the freezer has SIGKILL before it gets anywhere near
 *    user mode. SIGKILL dumps no core. exit has no robust futexes to look at
 *  - process_vm_readv(), /proc/PID/mem, cmdline and environ, ptrace, and all who
 *    have pages of a foreign address space (FOLL_REMOTE): EFAULT
 *  - files in the partition that somebody outside has open: EIO, SIGBUS for a new
 *    mapping, also after the instance has ended, for as long as they are there
 *  - khugepaged and migration, which would copy zeros to where they are not known
 *    to be worthless, or bring memory back for nothing
 *  - clear_child_tid, which only the dying instance can wait for: exit would bring
 *    back the page of each thread's stack
 *
 * Harmless:
 *
 *  - exit_mmap(), which looks at struct pages; so do page faults that the host
 *    answers with zeros, and splitting of huge pages
 *  - init_on_free, which writes zeros: it brings back the pages that it frees
 *  - KSM, which leaves all partitions alone, and reclaim, which only a fault inside
 *    the partition begins
 *  - free pages: what they hold means nothing, but for page_poison=1, with which
 *    nothing is doomed
 *  - a symbolic link in a tmpfs of the instance, followed from outside without
 *    taking a lock: it leads nowhere
 *  - /proc/kcore and /dev/mem, whose reader is the administrator
 */
#include <linux/cgroup.h>
#include <linux/mm.h>
#include <linux/pagemap.h>
#include <linux/sched/signal.h>
#include <linux/swap.h>

#include "core.h"
#include "doom.h"
#include "drain.h"
#include "frozen.h"
#include "page.h"
#include "zone.h"

/* Does somebody outside map a file's folio, or where it would be? It is locked. */
static bool squeezy_is_mapped_outside(struct squeezy_partition *p,
				      struct folio *folio)
{
	struct address_space *mapping = folio->mapping;
	struct vm_area_struct *vma;
	bool outside = false;

	if (!mapping || folio_test_anon(folio))
		return false;
	i_mmap_lock_read(mapping);
	vma_interval_tree_foreach(vma, &mapping->i_mmap, folio->index,
				  folio_next_index(folio) - 1) {
		if (vma->vm_mm->squeezy != p) {
			outside = true;
			break;
		}
	}
	i_mmap_unlock_read(mapping);
	return outside;
}

/* With one reference of ours; anybody who works with it has it locked, or has one. */
static const char *squeezy_check_folio(struct squeezy_partition *p,
				       struct folio *folio)
{
	const char *reason = NULL;

	if (!folio_trylock(folio))
		return "a page is locked";
	if (folio_test_writeback(folio))
		reason = "a page is being written back";
	else if (folio_ref_count(folio) != folio_expected_ref_count(folio) + 1)
		reason = "a page is used by others";
	else if (squeezy_is_mapped_outside(p, folio))
		reason = "a file is mapped by others";
	folio_unlock(folio);
	return reason;
}

static int squeezy_check_pages(struct squeezy_partition *p)
{
	const unsigned long end = p->start_pfn + squeezy_layout.partition_pages;
	unsigned long pfn, step;

	for (pfn = p->start_pfn; pfn < end; pfn += step) {
		struct page *page = pfn_to_page(pfn);
		const char *reason;
		struct folio *folio;

		step = 1;
		if (!(pfn & 1023))
			cond_resched();
		/* Free, or within a folio that has been split meanwhile. */
		if (!page_ref_count(page))
			continue;
		folio = page_folio(page);
		if (!folio_try_get(folio))
			continue;
		if (page_folio(page) == folio) {
			step = folio_nr_pages(folio);
			reason = squeezy_check_folio(p, folio);
		} else {
			reason = "a page is being split or freed";
		}
		folio_put(folio);
		if (reason)
			return squeezy_refuse_doom(p, reason);
	}
	return 0;
}

static int squeezy_doom_instance(struct squeezy_instance *instance)
{
	struct squeezy_partition *p = instance->p;
	int rc;

	lockdep_assert_held(&cgroup_mutex);

	if (p->doomed)
		return 0;
	rc = squeezy_check_frozen(instance);
	if (rc)
		return rc;
	/* A page on its way to an LRU list has a reference for that. */
	lru_add_drain_all();
	/* For what is not to be doomed, nobody is kept out, not even for a moment. */
	rc = squeezy_check_pages(p);
	if (rc)
		return rc;

	WRITE_ONCE(p->doomed, true);
	/*
	 * Pairs with the reference that who looks up a folio of a file takes before it
	 * looks here: it sees this, or the check below sees its reference.
	 */
	smp_mb();
	rc = squeezy_await_foreigners(instance);
	if (!rc)
		rc = squeezy_check_pages(p);
	if (rc)
		WRITE_ONCE(p->doomed, false);
	else
		squeezy_let_host_discard(p);
	return rc;
}

/**
 * squeezy_doom - make a frozen instance one that can only be killed
 * @p: its partition
 *
 * While the checks run, nobody can thaw a cgroup, nor join the instance.
 *
 * Return: 0 if it is doomed, -EBUSY if an instance has a process that is not frozen,
 * or somebody else has to do with its memory, -ENODATA if there is no instance,
 * -EOPNOTSUPP if free pages are poisoned, -ENOMEM, -EINTR if the caller is being
 * killed.
 */
int squeezy_doom(struct squeezy_partition *p)
{
	struct squeezy_instance instance = { .p = p };
	int rc;

	if (page_poisoning_enabled())
		return -EOPNOTSUPP;
	cgroup_lock();
	if (!squeezy_get(p)) {
		cgroup_unlock();
		return -ENODATA;
	}
	rc = squeezy_doom_instance(&instance);
	cgroup_unlock();

	squeezy_put_threads(&instance);
	squeezy_put(p);
	return rc;
}

/**
 * squeezy_undoom - undo squeezy_doom()
 * @p: its partition
 *
 * Who has left the freezer already dies all the same.
 *
 * Return: 0, -EIO if the host has discarded the memory, -ENODATA if there is no
 * instance.
 */
int squeezy_undoom(struct squeezy_partition *p)
{
	int rc = 0;

	cgroup_lock();
	if (!squeezy_get(p)) {
		cgroup_unlock();
		return -ENODATA;
	}
	if (squeezy_keep_host_from_discarding(p))
		WRITE_ONCE(p->doomed, false);
	else
		rc = -EIO;
	cgroup_unlock();
	squeezy_put(p);
	return rc;
}

/**
 * __squeezy_thawed - current may have left the freezer
 *
 * It is on its way to user mode, or to exit: each frozen thread comes here first,
 * whoever woke it.
 */
void __squeezy_thawed(void)
{
	struct mm_struct *mm = current->mm;

	if (cgroup_task_frozen(current) || !mm || !mm->squeezy ||
	    !READ_ONCE(mm->squeezy->doomed))
		return;

#ifdef CONFIG_FUTEX
	/* Empty, but exit could no longer see that. */
	current->robust_list = NULL;
#endif
	current->clear_child_tid = NULL;
	do_send_sig_info(SIGKILL, SEND_SIG_PRIV, current, PIDTYPE_TGID);
}

/**
 * __squeezy_mm_doomed - is this the address space of a doomed instance?
 * @mm: the address space, whose lock is held
 */
bool __squeezy_mm_doomed(const struct mm_struct *mm)
{
	return mm->squeezy && READ_ONCE(mm->squeezy->doomed);
}

/**
 * __squeezy_folio_doomed - is this memory of a doomed instance?
 * @folio: a folio of a partition, held
 */
bool __squeezy_folio_doomed(struct folio *folio)
{
	return READ_ONCE(squeezy_folio_partition(folio)->doomed);
}
