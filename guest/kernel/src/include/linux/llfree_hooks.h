/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * LLFree: what the page allocator calls for zones whose pages are not on free
 * lists. mm/llfree/state.h has the design.
 */
#ifndef _LINUX_LLFREE_HOOKS_H
#define _LINUX_LLFREE_HOOKS_H

#include <linux/jump_label.h>
#include <linux/mmzone.h>

struct page;

#ifdef CONFIG_LLFREE

DECLARE_STATIC_KEY_FALSE(llfree_key);

/* Has LLFree the pages of this zone? */
static inline bool zone_is_llfree(const struct zone *zone)
{
	return static_branch_unlikely(&llfree_key) && zone->llfree;
}

struct page *llfree_alloc(struct zone *zone, unsigned int order,
			  int migratetype);
void llfree_free(struct zone *zone, unsigned long pfn, unsigned int order);
bool llfree_alloc_page(struct zone *zone, unsigned long pfn);
bool llfree_has_page(const struct zone *zone, unsigned long pfn);

#else /* !CONFIG_LLFREE */

static inline bool zone_is_llfree(const struct zone *zone)
{
	return false;
}

static inline struct page *llfree_alloc(struct zone *zone, unsigned int order,
					int migratetype)
{
	return NULL;
}

static inline void llfree_free(struct zone *zone, unsigned long pfn,
			       unsigned int order)
{
}

static inline bool llfree_alloc_page(struct zone *zone, unsigned long pfn)
{
	return false;
}

static inline bool llfree_has_page(const struct zone *zone, unsigned long pfn)
{
	return false;
}

#endif /* CONFIG_LLFREE */

#endif /* _LINUX_LLFREE_HOOKS_H */
