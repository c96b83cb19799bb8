/* SPDX-License-Identifier: GPL-2.0 */
/* What LLFree says of itself, as docs/abi.md has it: /sys/kernel/mm/llfree. */
#ifndef SQUEEZY_TEST_LLFREE_H
#define SQUEEZY_TEST_LLFREE_H

#include "harness.h"

/* How often something has happened since the kernel booted: counters/NAME. */
u64 event_count(const char *name);
/* What it says of a zone: zones/ZONE/NAME. */
u64 zone_number(const char *zone, const char *name);
/* Areas of a zone that are entirely free. */
unsigned int free_areas(const char *zone);
/* Whether Linux keeps the memory that it has booted with by itself. */
bool on_free_lists(void);

#endif
