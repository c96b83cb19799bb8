/* SPDX-License-Identifier: GPL-2.0 */
/* The kernel's thread that makes huge pages of small ones, behind a process's back. */
#ifndef SQUEEZY_TEST_KHUGEPAGED_H
#define SQUEEZY_TEST_KHUGEPAGED_H

#include "harness.h"

/* Small pages that could be huge ones but for advice. */
char *map_small(u64 bytes);
/* Bytes of huge pages in the caller's anonymous memory. */
u64 huge_bytes(void);
/*
 * Gives that advice, and fails unless khugepaged then makes huge pages of all of it. Meanwhile it
 * pauses for milliseconds, instead of ten seconds and a minute.
 */
void assert_made_huge(char *memory, u64 bytes);

#endif
