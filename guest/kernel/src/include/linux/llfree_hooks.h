/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * LLFree: what the memory management calls for zones whose pages are not on free
 * lists. mm/llfree/state.h has the design.
 */
#ifndef _LINUX_LLFREE_HOOKS_H
#define _LINUX_LLFREE_HOOKS_H

#include <linux/jump_label.h>
#include <linux/mmzone.h>

struct page;

#ifdef CONFIG_LLFREE

DECLARE_STATIC_KEY_FALSE(llfree_key);

/* Has LLFree the pages of any zone? */
static inline bool llfree_enabled(void)
{
	return static_branch_unlikely(&llfree_key);
}

/* Has LLFree the pages of this zone? */
static inline bool zone_is_llfree(const struct zone *zone)
{
	return llfree_enabled() && zone->llfree;
}

void llfree_early_init(void);

/* Called only where CONFIG_LLFREE is on. */
struct page *llfree_alloc(struct zone *zone, unsigned int order,
			  int migratetype);
void llfree_free(struct zone *zone, unsigned long pfn, unsigned int order);
struct page *llfree_alloc_target(struct zone *zone, unsigned long pfn,
				 unsigned int order);
unsigned int llfree_ask_hosts(struct zonelist *zonelist,
			      enum zone_type highest_zoneidx);
void llfree_wait_for_held(struct zonelist *zonelist,
			  enum zone_type highest_zoneidx, unsigned int held);
unsigned int llfree_wait_for_hosts(struct zonelist *zonelist,
				   enum zone_type highest_zoneidx);
bool llfree_hosts_interfered(struct zonelist *zonelist,
			     enum zone_type highest_zoneidx, unsigned int epochs);
/* In mm/page_alloc.c. */
bool llfree_drop_failed(struct zone *zone, struct page *page, unsigned int order);

bool llfree_take_off(struct zone *zone, unsigned long pfn);
bool llfree_has_page(const struct zone *zone, unsigned long pfn);
bool llfree_has_order(const struct zone *zone, unsigned int order);
bool llfree_has_block(const struct zone *zone, unsigned int order);
bool llfree_may_compact(const struct zone *zone, unsigned long pfn);

bool __llfree_page_is_free(const struct page *page);
bool __llfree_has_boot_memory(void);
bool __llfree_veto_isolation(const struct zone *zone, bool report);
bool __llfree_veto_kexec(void);
unsigned long __llfree_in_hand(struct zone *zone);
void __llfree_set_reserve(struct zone *zone, unsigned long pages);
void __llfree_free_blocks(const struct zone *zone, unsigned long *blocks);

#else /* !CONFIG_LLFREE */

static inline bool llfree_enabled(void)
{
	return false;
}

static inline bool zone_is_llfree(const struct zone *zone)
{
	return false;
}

static inline void llfree_early_init(void)
{
}

static inline bool llfree_take_off(struct zone *zone, unsigned long pfn)
{
	return false;
}

static inline bool llfree_has_page(const struct zone *zone, unsigned long pfn)
{
	return false;
}

static inline bool llfree_has_order(const struct zone *zone, unsigned int order)
{
	return false;
}

static inline bool llfree_has_block(const struct zone *zone, unsigned int order)
{
	return false;
}

static inline bool llfree_may_compact(const struct zone *zone, unsigned long pfn)
{
	return false;
}

static inline bool __llfree_page_is_free(const struct page *page)
{
	return false;
}

static inline bool __llfree_has_boot_memory(void)
{
	return false;
}

static inline bool __llfree_veto_isolation(const struct zone *zone, bool report)
{
	return false;
}

static inline bool __llfree_veto_kexec(void)
{
	return false;
}

static inline unsigned long __llfree_in_hand(struct zone *zone)
{
	return 0;
}

static inline void __llfree_set_reserve(struct zone *zone, unsigned long pages)
{
}

static inline void __llfree_free_blocks(const struct zone *zone,
					unsigned long *blocks)
{
}

#endif /* CONFIG_LLFREE */

/* Has LLFree the memory that the kernel has booted with? */
static inline bool llfree_has_boot_memory(void)
{
	return llfree_enabled() && __llfree_has_boot_memory();
}

/* Is a page free that the host may have nothing behind? To read it could bring it back. */
static inline bool llfree_page_is_free(const struct page *page)
{
	return llfree_enabled() && __llfree_page_is_free(page);
}

/* Must pages of this zone not be isolated? Says why, if it is to be reported. */
static inline bool llfree_veto_isolation(const struct zone *zone, bool report)
{
	return zone_is_llfree(zone) && __llfree_veto_isolation(zone, report);
}

/* Must no other kernel be started from this one? */
static inline bool llfree_veto_kexec(void)
{
	return llfree_enabled() && __llfree_veto_kexec();
}

/*
 * Pages that NR_FREE_PAGES counts, but that the host has in hand. To be called
 * before NR_FREE_PAGES is read: it brings that up to date.
 */
static inline unsigned long llfree_in_hand(struct zone *zone)
{
	return zone_is_llfree(zone) ? __llfree_in_hand(zone) : 0;
}

/* Tells the host how many pages of a zone have to stay free. */
static inline void llfree_set_reserve(struct zone *zone, unsigned long pages)
{
	if (zone_is_llfree(zone))
		__llfree_set_reserve(zone, pages);
}

/* Counts free blocks of each order in @blocks; false if the free lists have them. */
static inline bool llfree_free_blocks(const struct zone *zone,
				      unsigned long *blocks)
{
	if (!zone_is_llfree(zone))
		return false;
	__llfree_free_blocks(zone, blocks);
	return true;
}

#endif /* _LINUX_LLFREE_HOOKS_H */
