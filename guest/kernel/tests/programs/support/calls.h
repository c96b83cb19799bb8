/* SPDX-License-Identifier: GPL-2.0 */
/* How often a function of the kernel is called: who did something, whenever that was. */
#ifndef SQUEEZY_TEST_CALLS_H
#define SQUEEZY_TEST_CALLS_H

#include "harness.h"

/*
 * Counts calls by a process with one thread, 0 for the caller, and by interrupts while it runs,
 * from now on. A descriptor, which counts no further when the process ends.
 */
int count_calls(pid_t pid, const char *function);
/* Counts calls by whatever runs on a processor, from now on. */
int count_calls_on(int processor, const char *function);
/* How many there have been. */
u64 counted_calls(int count);

#endif
