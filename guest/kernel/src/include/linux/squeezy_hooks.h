/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Private memory partitions: what the rest of the kernel calls.
 *
 * Everything here is behind one static key that is switched on when the first
 * partition is set up, so a guest without partitions pays nothing, and nothing
 * at all is compiled in without CONFIG_SQUEEZY. mm/squeezy/core.h has the
 * design. The file is long because each call is in it twice, for the option on
 * and for the option off.
 */
#ifndef _LINUX_SQUEEZY_HOOKS_H
#define _LINUX_SQUEEZY_HOOKS_H

#include <linux/mm.h>
#include <linux/squeezy.h>
#include <linux/types.h>

struct folio;
struct inode;
struct mem_cgroup;
struct mm_struct;
struct oom_control;
struct page;
struct page_reporting_dev_info;
struct sk_buff;
struct sock;
struct squeezy_partition;
struct task_struct;
struct zonelist;

/**
 * struct squeezy_device_ops - what a driver of a memory device offers
 * @plug: make a range of the device's memory usable, in one request
 * @unplug: give a range back to the host, in one request
 * @kick: look at the requested size again, soon; may be called in any context
 *
 * @plug and @unplug sleep, and return 0, -EAGAIN when the driver has to read
 * its configuration again first, or another error number.
 */
struct squeezy_device_ops {
	int (*plug)(void *owner, u64 addr, u64 size);
	int (*unplug)(void *owner, u64 addr, u64 size);
	void (*kick)(void *owner);
};

#ifdef CONFIG_SQUEEZY

/* Zones and pages */
struct zone *squeezy_zone_for_pfn(unsigned long pfn);
unsigned long squeezy_page_flags(unsigned long pfn);
struct zone *__squeezy_next_zone(unsigned int id);
bool __squeezy_online_page(struct page *page, unsigned int order);
bool __squeezy_veto_offline(unsigned long start_pfn, unsigned long nr_pages);
void __squeezy_page_freed(void);
unsigned long __squeezy_free_pages(void);
struct page *__squeezy_memmap_page(unsigned int order);
bool __squeezy_veto_reporting(void);

static inline struct zone *squeezy_next_zone(unsigned int id)
{
	return squeezy_enabled() ? __squeezy_next_zone(id) : NULL;
}

/*
 * While memory is onlined: true if @page is in a partition's slot, and has
 * been taken care of.
 */
static inline bool squeezy_online_page(struct page *page, unsigned int order)
{
	return squeezy_enabled() && __squeezy_online_page(page, order);
}

/* True if the range must not be offlined by anybody but us. */
static inline bool squeezy_veto_offline(unsigned long start_pfn,
					unsigned long nr_pages)
{
	return squeezy_enabled() &&
	       __squeezy_veto_offline(start_pfn, nr_pages);
}

/* Free pages that only the processes of one partition could ever get. */
static inline unsigned long squeezy_free_pages(void)
{
	return squeezy_enabled() ? __squeezy_free_pages() : 0;
}

/* A page for the memory map of a partition; NULL if it is none's, or for want. */
static inline struct page *squeezy_memmap_page(unsigned int order)
{
	return squeezy_enabled() ? __squeezy_memmap_page(order) : NULL;
}

/* True if Linux is not to report free pages by itself. */
static inline bool squeezy_veto_reporting(void)
{
	return squeezy_enabled() && __squeezy_veto_reporting();
}

/* Allocation */
struct folio *squeezy_shmem_alloc(gfp_t gfp, unsigned int order);
int squeezy_charge_file(struct folio *folio, gfp_t gfp);
struct folio *squeezy_collapse_alloc(struct mm_struct *mm, gfp_t gfp);
struct folio *squeezy_migration_target(struct folio *src, gfp_t gfp,
				       unsigned int order);

/* Charges */
gfp_t __squeezy_kernel_gfp(gfp_t gfp);
struct mem_cgroup *__squeezy_charge_begin(const struct sock *sk);
void __squeezy_charge_end(struct mem_cgroup *old);
bool __squeezy_charge_skb(struct sock *sk, struct sk_buff **skb);
bool __squeezy_refuse_lock(const struct inode *inode);

static inline gfp_t squeezy_kernel_gfp(gfp_t gfp)
{
	return squeezy_enabled() ? __squeezy_kernel_gfp(gfp) : gfp;
}

static inline struct mem_cgroup *squeezy_charge_begin(const struct sock *sk)
{
	return squeezy_enabled() ? __squeezy_charge_begin(sk) : NULL;
}

static inline void squeezy_charge_end(struct mem_cgroup *old)
{
	if (squeezy_enabled())
		__squeezy_charge_end(old);
}

static inline bool squeezy_charge_skb(struct sock *sk, struct sk_buff **skb)
{
	return !squeezy_enabled() || __squeezy_charge_skb(sk, skb);
}

static inline bool squeezy_refuse_lock(const struct inode *inode)
{
	return squeezy_enabled() && __squeezy_refuse_lock(inode);
}

/* Lifetime of tasks and address spaces */
void __squeezy_mm_init(struct mm_struct *mm, struct task_struct *task);
void __squeezy_mm_exit(struct mm_struct *mm);
void __squeezy_drop_pending(struct task_struct *task);
int squeezy_prctl(unsigned long op, unsigned long a, unsigned long b,
		  unsigned long c);

static inline void squeezy_mm_init(struct mm_struct *mm,
				   struct task_struct *task)
{
	if (squeezy_enabled())
		__squeezy_mm_init(mm, task);
}

static inline void squeezy_mm_exit(struct mm_struct *mm)
{
	if (squeezy_enabled())
		__squeezy_mm_exit(mm);
}

/* The task's assignment has been consumed by execve, or the task exits. */
static inline void squeezy_drop_pending(struct task_struct *task)
{
	if (squeezy_enabled())
		__squeezy_drop_pending(task);
}

/* Doomed instances, whose memory the host may have discarded */
void __squeezy_thawed(void);
bool __squeezy_mm_doomed(const struct mm_struct *mm);
bool __squeezy_folio_doomed(struct folio *folio);

/* The current task has left the freezer, or has to stay in it. */
static inline void squeezy_thawed(void)
{
	if (squeezy_enabled())
		__squeezy_thawed();
}

/* True if nobody may look into an address space from outside. */
static inline bool squeezy_mm_doomed(const struct mm_struct *mm)
{
	return squeezy_enabled() && __squeezy_mm_doomed(mm);
}

/* True if nobody may look at what a file has there. The caller holds @folio. */
static inline bool squeezy_folio_doomed(struct folio *folio)
{
	return squeezy_page(&folio->page) && __squeezy_folio_doomed(folio);
}

/* Out of memory */
bool __squeezy_oom_begin(struct oom_control *oc);
bool __squeezy_oom_eligible(struct oom_control *oc, struct task_struct *task);
long __squeezy_oom_points(struct oom_control *oc, struct task_struct *task,
			  long points);
void __squeezy_oom_selected(struct oom_control *oc);
bool __squeezy_oom_confined(struct task_struct *task);
bool __squeezy_oom_log(struct mm_struct *mm);
bool squeezy_oom_victim(struct squeezy_partition *p, struct task_struct *task);
unsigned long squeezy_managed_pages(struct squeezy_partition *p);
bool partition_out_of_memory(struct oom_control *oc);

/* Ordinary memory is short: true if the allocation is to be tried again. */
static inline bool squeezy_oom_begin(struct oom_control *oc)
{
	return squeezy_enabled() && __squeezy_oom_begin(oc);
}

static inline bool squeezy_oom_eligible(struct oom_control *oc,
					struct task_struct *task)
{
	return !squeezy_enabled() || __squeezy_oom_eligible(oc, task);
}

static inline long squeezy_oom_points(struct oom_control *oc,
				      struct task_struct *task, long points)
{
	if (squeezy_enabled())
		return __squeezy_oom_points(oc, task, points);
	return points;
}

/* All processes have been looked at. */
static inline void squeezy_oom_selected(struct oom_control *oc)
{
	if (squeezy_enabled())
		__squeezy_oom_selected(oc);
}

/* Is this a victim of its partition, and not of a lack of ordinary memory? */
static inline bool squeezy_oom_confined(struct task_struct *task)
{
	return squeezy_enabled() && __squeezy_oom_confined(task);
}

/* Is the kill of this address space worth a line in the log? */
static inline bool squeezy_oom_log(struct mm_struct *mm)
{
	return !squeezy_enabled() || __squeezy_oom_log(mm);
}

/* The memory device */
void squeezy_early_init(void);
u64 squeezy_register_device(const struct squeezy_device_ops *ops, void *owner,
			    u64 addr, u64 size, u64 block_size, int mgid);
void squeezy_unregister_device(void *owner);
u64 squeezy_device_usable(void *owner, u64 usable);
void squeezy_device_requested(void *owner, u64 requested);
u64 squeezy_shared_missing(void *owner, u64 plugged);
int squeezy_settle(void *owner);
int squeezy_plug(void *owner, u64 size);
int squeezy_unplug(void *owner, u64 size);

/* Provided by the page allocator for mm/squeezy/ only. */
struct page *alloc_partition_page(gfp_t gfp, unsigned int order,
				  struct zonelist *zonelist);
struct page *alloc_shared_page(gfp_t gfp, unsigned int order,
			       struct zonelist *zonelist);
void free_partition_core(struct page *page, unsigned int order);
void zone_watch(struct zone *zone);
void zone_unwatch(struct zone *zone);
void isolate_free_block(struct page *page, unsigned int order);
void putback_free_block(struct page *page, unsigned int order);
void putback_reported_block(struct page *page, unsigned int order);
void partition_zone_init(struct zone *zone, int nid, unsigned int id);

/* Provided by free page reporting, likewise. */
struct page_reporting_dev_info *page_reporting_claim(void);
void page_reporting_release(struct page_reporting_dev_info *prdev);

#else /* !CONFIG_SQUEEZY */

static inline struct zone *squeezy_zone_for_pfn(unsigned long pfn)
{
	return NULL;
}

static inline struct zone *squeezy_next_zone(unsigned int id)
{
	return NULL;
}

static inline bool squeezy_online_page(struct page *page, unsigned int order)
{
	return false;
}

static inline bool squeezy_veto_offline(unsigned long start_pfn,
					unsigned long nr_pages)
{
	return false;
}

static inline unsigned long squeezy_free_pages(void)
{
	return 0;
}

static inline struct page *squeezy_memmap_page(unsigned int order)
{
	return NULL;
}

static inline bool squeezy_veto_reporting(void)
{
	return false;
}

static inline struct folio *squeezy_shmem_alloc(gfp_t gfp, unsigned int order)
{
	return NULL;
}

static inline int squeezy_charge_file(struct folio *folio, gfp_t gfp)
{
	return 0;
}

static inline gfp_t squeezy_kernel_gfp(gfp_t gfp)
{
	return gfp;
}

static inline struct mem_cgroup *squeezy_charge_begin(const struct sock *sk)
{
	return NULL;
}

static inline void squeezy_charge_end(struct mem_cgroup *old)
{
}

static inline bool squeezy_charge_skb(struct sock *sk, struct sk_buff **skb)
{
	return true;
}

static inline bool squeezy_refuse_lock(const struct inode *inode)
{
	return false;
}

static inline struct folio *squeezy_collapse_alloc(struct mm_struct *mm,
						   gfp_t gfp)
{
	return NULL;
}

static inline struct folio *squeezy_migration_target(struct folio *src,
						     gfp_t gfp,
						     unsigned int order)
{
	return NULL;
}

static inline void squeezy_mm_init(struct mm_struct *mm,
				   struct task_struct *task)
{
}

static inline void squeezy_mm_exit(struct mm_struct *mm)
{
}

static inline void squeezy_drop_pending(struct task_struct *task)
{
}

static inline void squeezy_thawed(void)
{
}

static inline bool squeezy_mm_doomed(const struct mm_struct *mm)
{
	return false;
}

static inline bool squeezy_folio_doomed(struct folio *folio)
{
	return false;
}

static inline bool squeezy_oom_begin(struct oom_control *oc)
{
	return false;
}

static inline bool squeezy_oom_eligible(struct oom_control *oc,
					struct task_struct *task)
{
	return true;
}

static inline long squeezy_oom_points(struct oom_control *oc,
				      struct task_struct *task, long points)
{
	return points;
}

static inline void squeezy_oom_selected(struct oom_control *oc)
{
}

static inline bool squeezy_oom_confined(struct task_struct *task)
{
	return false;
}

static inline bool squeezy_oom_log(struct mm_struct *mm)
{
	return true;
}

static inline void squeezy_early_init(void)
{
}

static inline void squeezy_unregister_device(void *owner)
{
}

static inline u64 squeezy_device_usable(void *owner, u64 usable)
{
	return usable;
}

static inline void squeezy_device_requested(void *owner, u64 requested)
{
}

static inline u64 squeezy_shared_missing(void *owner, u64 plugged)
{
	return U64_MAX;
}

static inline int squeezy_plug(void *owner, u64 size)
{
	return 0;
}

static inline int squeezy_unplug(void *owner, u64 size)
{
	return 0;
}

#endif /* CONFIG_SQUEEZY */

#endif /* _LINUX_SQUEEZY_HOOKS_H */
