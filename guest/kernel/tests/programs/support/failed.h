/* SPDX-License-Identifier: GPL-2.0 */
/* Memory that fails. */
#ifndef SQUEEZY_TEST_FAILED_H
#define SQUEEZY_TEST_FAILED_H

#include "memory.h"

/* How much the kernel has taken out of use, in bytes. */
u64 corrupted_bytes(void);
/* Whether a page frame is marked as one that has failed. */
bool is_poisoned(u64 pfn);

#define HARD_OFFLINE	"hard_offline_page"
#define SOFT_OFFLINE	"soft_offline_page"
/* Has a page fail as writing to this file of sysfs has it fail. */
void have_fail(u64 pfn, const char *file);

#endif
