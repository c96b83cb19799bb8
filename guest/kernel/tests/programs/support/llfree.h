/* SPDX-License-Identifier: GPL-2.0 */
/* What LLFree says of itself, as docs/abi.md has it: /sys/kernel/mm/llfree. */
#ifndef SQUEEZY_TEST_LLFREE_H
#define SQUEEZY_TEST_LLFREE_H

#include "harness.h"

/* How often something has happened since the kernel booted: counters/NAME. */
u64 event_count(const char *name);
/* Whether Linux keeps the memory that it has booted with by itself. */
bool on_free_lists(void);

#endif
