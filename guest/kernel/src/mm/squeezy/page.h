/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef _MM_SQUEEZY_PAGE_H
#define _MM_SQUEEZY_PAGE_H

#include "core.h"

struct squeezy_partition *squeezy_pfn_partition(unsigned long pfn);
struct squeezy_partition *squeezy_folio_partition(struct folio *folio);
struct folio *squeezy_folio_at(unsigned long pfn);

#endif /* _MM_SQUEEZY_PAGE_H */
