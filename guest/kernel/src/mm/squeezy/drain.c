// SPDX-License-Identifier: GPL-2.0-only
/*
 * Get every page of an unused partition back.
 *
 * That the last address space is gone does not prove that the pages are. Most
 * are on per-CPU lists, which are drained. What is left after that is held by a
 * pipe, a socket, an I/O request in flight, a long-term pin: it cannot be moved,
 * and the partition is watched, so that the free of such a page runs the drain
 * again. Files could be moved, but may be as large as the partition, and nobody
 * would be charged for them. Their mounts go down after the memory of the last
 * process, and they with these. What is left then may be garbage that waits for
 * its collector, which is run.
 */
#include <linux/irq_work.h>
#include <linux/mm.h>
#include <linux/swap.h>
#include <linux/workqueue.h>
#include <net/af_unix.h>

#include "../internal.h"
#include "core.h"
#include "counters.h"
#include "device.h"
#include "drain.h"
#include "page.h"
#include "retry.h"
#include "zone.h"
#include <trace/events/squeezy.h>

static void squeezy_drain_fn(struct work_struct *work);
static DECLARE_WORK(squeezy_drain_work, squeezy_drain_fn);

/* Have unused partitions drained, from any context but under zone->lock. */
static void squeezy_queue_drain(void)
{
	queue_work(system_unbound_wq, &squeezy_drain_work);
}

/* For files that are left: when none of them goes for this long, they stay. */
#define SQUEEZY_FILES_PAUSE	HZ

static DECLARE_DELAYED_WORK(squeezy_look_work, squeezy_drain_fn);

/*
 * How long after a partition was quarantined garbage is collected, at first, and
 * how long between two times, at most. The processes that were in it may close
 * their files only after that.
 */
#define SQUEEZY_COLLECT_MIN	(HZ / 10)
#define SQUEEZY_COLLECT_MAX	(10 * HZ)

/* Protected by squeezy_mutex. */
static unsigned long squeezy_collect_delay;

/*
 * Sockets that are in flight on each other, and pipes with them, keep pages that
 * nobody can get at any more. They are garbage, but collected only when somebody
 * closes another unix socket. The collector is a work item: the watch sees what
 * it frees.
 */
static void squeezy_collect_fn(struct work_struct *work)
{
	if (IS_ENABLED(CONFIG_UNIX))
		unix_gc();
	squeezy_queue_drain();
}

static DECLARE_DELAYED_WORK(squeezy_collect_work, squeezy_collect_fn);

/* A partition has been quarantined. */
static void squeezy_collect_soon(void)
{
	squeezy_collect_delay = SQUEEZY_COLLECT_MIN;
	mod_delayed_work(system_wq, &squeezy_collect_work,
			 squeezy_collect_delay);
}

/* A partition is quarantined still. */
static void squeezy_collect_later(void)
{
	if (delayed_work_pending(&squeezy_collect_work))
		return;
	squeezy_collect_delay = min(2 * squeezy_collect_delay,
				    SQUEEZY_COLLECT_MAX);
	queue_delayed_work(system_wq, &squeezy_collect_work,
			   squeezy_collect_delay);
}

/* A partition has become free, and may be one that the host wants back. */
static void squeezy_kick_for_surplus(void)
{
	unsigned int counts[SQUEEZY_NR_STATES];

	if (squeezy_surplus(counts))
		squeezy_device_kick();
}

static void squeezy_drain_fn(struct work_struct *work)
{
	struct squeezy_partition *p;
	bool quarantined = false;

	mutex_lock(&squeezy_mutex);
	squeezy_for_each_partition(p) {
		switch (READ_ONCE(p->state)) {
		case SQUEEZY_DRAINING:
		case SQUEEZY_QUARANTINED:
			if (squeezy_drain(p))
				squeezy_kick_for_surplus();
			else if (p->state == SQUEEZY_QUARANTINED)
				quarantined = true;
			break;
		default:
			break;
		}
	}
	/* With an address space go page tables, and soon files. */
	squeezy_memory_freed();
	if (quarantined)
		squeezy_collect_later();
	mutex_unlock(&squeezy_mutex);
}

static void squeezy_freed_fn(struct irq_work *work)
{
	squeezy_queue_drain();
}

static DEFINE_IRQ_WORK(squeezy_freed_work, squeezy_freed_fn);

/*
 * A page of a watched partition was freed. The caller holds zone->lock, under
 * which nothing may be woken: a scheduler lock can be held around zone->lock.
 */
void __squeezy_page_freed(void)
{
	irq_work_queue(&squeezy_freed_work);
}

/* Pages of files that are left. */
static unsigned long squeezy_file_pages(struct squeezy_partition *p)
{
	const unsigned long end = p->start_pfn + squeezy_layout.partition_pages;
	unsigned long pfn, step, pages = 0;

	for (pfn = p->start_pfn; pfn < end; pfn += step) {
		struct folio *folio = squeezy_folio_at(pfn);

		if (!(pfn & 1023))
			cond_resched();
		step = folio ? folio_nr_pages(folio) : 1;
		if (folio && !folio_test_anon(folio))
			pages += step;
		if (folio)
			folio_put(folio);
	}
	return pages;
}

/*
 * Whether files that were left are to be counted again later, and not before.
 * The last one's free brings us back; the work is for those that stay. It is one
 * for all partitions, and at most a pause late for any.
 */
static bool squeezy_files_pause(struct squeezy_partition *p)
{
	if (!p->files || !time_before(jiffies, p->next_look))
		return false;
	queue_delayed_work(system_unbound_wq, &squeezy_look_work,
			   SQUEEZY_FILES_PAUSE);
	return true;
}

/* Whether files are on their way out: as long as some go in each pause. */
static bool squeezy_files_go(struct squeezy_partition *p, unsigned long files)
{
	const bool go = files && (!p->files || files < p->files);

	p->files = go ? files : 0;
	p->next_look = jiffies + SQUEEZY_FILES_PAUSE;
	return squeezy_files_pause(p);
}

/**
 * squeezy_drain - try to make an unused partition free
 * @p: the partition, draining or quarantined
 *
 * Return: true if it is free now. Otherwise it is quarantined, or still draining
 * when files are left, and the free of a page brings us here again.
 */
bool squeezy_drain(struct squeezy_partition *p)
{
	unsigned long left, files;

	lockdep_assert_held(&squeezy_mutex);

	if (p->state == SQUEEZY_QUARANTINED) {
		/* Woken by a free. */
		if (!squeezy_is_empty(p)) {
			lru_add_drain_all();
			squeezy_flush_cpus(p);
			if (!squeezy_is_empty(p))
				return false;
		}
		squeezy_change_state(p, SQUEEZY_QUARANTINED, SQUEEZY_DRAINING);
	}

	squeezy_flush_cpus(p);
	if (squeezy_is_empty(p))
		goto out_free;
	if (squeezy_files_pause(p))
		return false;

	squeezy_watch(p);
	lru_add_drain_all();
	squeezy_flush_cpus(p);
	left = squeezy_pages_used(p);
	if (!left)
		goto out_free;

	files = squeezy_file_pages(p);
	trace_squeezy_stragglers(p->number, left, files);
	if (squeezy_files_go(p, files))
		return false;

	squeezy_count(SQUEEZY_QUARANTINES, 1);
	squeezy_count(SQUEEZY_STRAGGLERS, left);
	squeezy_change_state(p, SQUEEZY_DRAINING, SQUEEZY_QUARANTINED);
	squeezy_collect_soon();
	/* The last page may have gone between the count and here. */
	squeezy_queue_drain();
	return false;

out_free:
	p->files = 0;
	squeezy_forget_doom(p);
	squeezy_unwatch(p);
	squeezy_enter_free(p);
	return true;
}

/**
 * squeezy_put - let go of an assigned partition
 * @p: the partition
 *
 * The last user's leaving sends the partition to be drained. Does not sleep.
 */
void squeezy_put(struct squeezy_partition *p)
{
	if (squeezy_leave(p))
		squeezy_queue_drain();
}
