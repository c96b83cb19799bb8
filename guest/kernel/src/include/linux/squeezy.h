/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Private memory partitions: what linux/mm.h, linux/gfp.h and linux/pagemap.h
 * need to know of them. All other calls are in linux/squeezy_hooks.h.
 */
#ifndef _LINUX_SQUEEZY_H
#define _LINUX_SQUEEZY_H

#include <linux/jump_label.h>
#include <linux/types.h>

struct folio;
struct page;
struct vm_area_struct;
struct zone;

#ifdef CONFIG_SQUEEZY

DECLARE_STATIC_KEY_FALSE(squeezy_key);

struct zone *squeezy_page_zone(const struct page *page);
struct folio *squeezy_vma_alloc_folio(gfp_t gfp, unsigned int order,
				      struct vm_area_struct *vma);
struct folio *squeezy_file_alloc(gfp_t gfp, unsigned int order);

/* Are there any partitions? */
static inline bool squeezy_enabled(void)
{
	return static_branch_unlikely(&squeezy_key);
}

#else

static inline bool squeezy_enabled(void)
{
	return false;
}

static inline struct folio *squeezy_file_alloc(gfp_t gfp, unsigned int order)
{
	return NULL;
}

#endif /* CONFIG_SQUEEZY */

#endif /* _LINUX_SQUEEZY_H */
