// SPDX-License-Identifier: GPL-2.0-only
/*
 * Report free blocks of a partition to the host, which discards them.
 *
 * An instance that lives on may have given most of its memory back to us; the
 * host still holds it. On request, blocks are taken off the partition's free
 * lists a batch at a time, sent to the device of free page reporting
 * (virtio-balloon), and put back. The partition stays plugged and assigned, and
 * a block that is used again is faulted in by the host.
 *
 * A request holds the partition as a user (I3, I4 in core.h), so it is neither
 * drained nor unplugged nor assigned meanwhile.
 */
#include <linux/completion.h>
#include <linux/ktime.h>
#include <linux/llfree_hooks.h>
#include <linux/mm.h>
#include <linux/refcount.h>
#include <linux/slab.h>
#include <linux/swap.h>
#include <linux/workqueue.h>

#include "batch.h"
#include "core.h"
#include "counters.h"
#include "drain.h"
#include "report.h"
#include "zone.h"
#include <trace/events/squeezy.h>

/* A bit of squeezy_partition.flags: a report is under way. */
#define SQUEEZY_REPORTING	0

/* How long somebody waits for a report. It gives up after the batch it is at. */
#define SQUEEZY_REPORT_JIFFIES	(10 * HZ)

/**
 * struct squeezy_report - one report
 * @work: runs it; freezable, as the device's driver expects
 * @done: it has ended
 * @holders: who asked for it, and @work
 * @p: the partition, held
 * @order: order of the smallest blocks to report
 * @abandoned: nobody waits for it any more
 * @result: 0 or an error number, once it is @done
 * @bytes: reported so far
 * @blocks: reported so far
 * @requests: sent to the device so far
 * @start: when it began, in ns
 * @device_ns: how long the device took for @requests
 * @batch: the blocks it is at, and what the device is told about them
 */
struct squeezy_report {
	struct work_struct work;
	struct completion done;
	refcount_t holders;
	struct squeezy_partition *p;
	unsigned int order;
	bool abandoned;
	int result;
	u64 bytes;
	u64 blocks;
	u64 requests;
	u64 start;
	u64 device_ns;
	struct squeezy_batch batch;
};

static int squeezy_report_batch(struct squeezy_report *report,
				unsigned long *pfn, unsigned int order)
{
	struct page_reporting_dev_info *prdev = page_reporting_claim();
	struct squeezy_partition *p = report->p;
	struct squeezy_batch *batch = &report->batch;
	u64 start;
	int rc = 0;

	if (!prdev)
		return -EOPNOTSUPP;

	squeezy_isolate_batch(p, batch, pfn, order);
	if (batch->nents) {
		sg_mark_end(&batch->sgl[batch->nents - 1]);
		start = ktime_get_ns();
		rc = prdev->report(prdev, batch->sgl, batch->nents);
		report->device_ns += ktime_get_ns() - start;
		report->requests++;
		if (rc) {
			squeezy_put_batch_back(p, batch);
		} else {
			squeezy_put_reported_batch_back(p, batch);
			report->bytes += batch->bytes;
			report->blocks += batch->blocks;
		}
	}
	page_reporting_release(prdev);
	return rc ? -EIO : 0;
}

/* Does nobody but the report hold the partition? */
static bool squeezy_is_left(struct squeezy_partition *p)
{
	return READ_ONCE(p->users) == 1;
}

static int squeezy_report_pass(struct squeezy_report *report, unsigned int order)
{
	struct squeezy_partition *p = report->p;
	const unsigned long end = p->start_pfn + squeezy_layout.partition_pages;
	unsigned long pfn = p->start_pfn;
	int rc = 0;

	while (pfn < end && !rc) {
		if (READ_ONCE(report->abandoned))
			return -ECANCELED;
		/* It is about to be given back as a whole. */
		if (squeezy_is_left(p))
			return -ENODATA;
		rc = squeezy_report_batch(report, &pfn, order);
		cond_resched();
	}
	return rc;
}

static void squeezy_account_report(struct squeezy_report *report)
{
	const u64 guest_ns = ktime_get_ns() - report->start - report->device_ns;
	struct squeezy_partition *p = report->p;

	atomic64_add(report->bytes, &p->reported_bytes);
	squeezy_count(SQUEEZY_REPORTS, 1);
	squeezy_count(SQUEEZY_REPORTED_BYTES, report->bytes);
	squeezy_count(SQUEEZY_REPORTED_BLOCKS, report->blocks);
	squeezy_count(SQUEEZY_REPORT_REQUESTS, report->requests);
	squeezy_count(SQUEEZY_REPORT_GUEST_NS, guest_ns);
	squeezy_count(SQUEEZY_REPORT_DEVICE_NS, report->device_ns);
	trace_squeezy_report(p->number, report->order, report->result,
			     report->bytes, report->blocks, report->requests,
			     guest_ns, report->device_ns);
}

static void squeezy_put_report(struct squeezy_report *report)
{
	if (refcount_dec_and_test(&report->holders))
		kfree(report);
}

static void squeezy_report_fn(struct work_struct *work)
{
	struct squeezy_report *report = container_of(work, struct squeezy_report,
						     work);
	struct squeezy_partition *p = report->p;
	const unsigned int whole = max(report->order, pageblock_order);

	report->start = ktime_get_ns();
	/* What is free for an instance may be on per-CPU lists for the zone. */
	lru_add_drain_all();
	squeezy_flush_cpus(p);

	/* The biggest first: they are what the host gives back fastest. */
	report->result = squeezy_report_pass(report, whole);
	if (!report->result && report->order < whole)
		report->result = squeezy_report_pass(report, report->order);

	squeezy_account_report(report);
	clear_bit_unlock(SQUEEZY_REPORTING, &p->flags);
	squeezy_put(p);
	complete(&report->done);
	squeezy_put_report(report);
}

static struct squeezy_report *squeezy_new_report(struct squeezy_partition *p,
						 unsigned int order)
{
	struct squeezy_report *report = kzalloc(sizeof(*report), GFP_KERNEL);

	if (!report)
		return NULL;
	INIT_WORK(&report->work, squeezy_report_fn);
	init_completion(&report->done);
	refcount_set(&report->holders, 2);
	report->p = p;
	report->order = order;
	return report;
}

/**
 * squeezy_report_partition - report the free blocks of a partition to the host
 * @p: the partition
 * @order: order of the smallest blocks to report, MAX_PAGE_ORDER at most
 *
 * Blocks that the host knows to be free since they were last used are left out.
 * Whatever the result, blocks may have been reported.
 *
 * Return: 0, -ENODATA if the partition is not assigned (any more), -EBUSY if it
 * is being reported already, -EOPNOTSUPP if there is no device with free page
 * reporting, -EIO if the device failed, -ETIMEDOUT if the host took too long,
 * -ENOMEM, -ERESTARTSYS if the caller is being killed.
 */
int squeezy_report_partition(struct squeezy_partition *p, unsigned int order)
{
	struct squeezy_report *report;
	long left;
	int rc;

	/* The host does not have to be told. */
	if (zone_is_llfree(&p->zone))
		return -EOPNOTSUPP;
	if (!squeezy_get(p))
		return -ENODATA;
	if (test_and_set_bit_lock(SQUEEZY_REPORTING, &p->flags)) {
		squeezy_put(p);
		return -EBUSY;
	}
	report = squeezy_new_report(p, order);
	if (!report) {
		clear_bit_unlock(SQUEEZY_REPORTING, &p->flags);
		squeezy_put(p);
		return -ENOMEM;
	}

	/*
	 * A host that does not answer leaves the work waiting, as it does with
	 * all that a driver of virtio does, but not the caller.
	 */
	queue_work(system_freezable_wq, &report->work);
	left = wait_for_completion_killable_timeout(&report->done,
						    SQUEEZY_REPORT_JIFFIES);
	if (left > 0) {
		rc = report->result;
	} else {
		WRITE_ONCE(report->abandoned, true);
		rc = left ?: -ETIMEDOUT;
	}
	squeezy_put_report(report);
	return rc;
}
