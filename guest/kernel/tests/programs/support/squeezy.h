/* SPDX-License-Identifier: GPL-2.0 */
/* The kernel's interface, as docs/abi.md has it: prctl(2) and /sys/kernel/mm/squeezy. */
#ifndef SQUEEZY_TEST_SQUEEZY_H
#define SQUEEZY_TEST_SQUEEZY_H

#include "harness.h"

#include <linux/squeezy.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define ANY	PR_SQUEEZY_ANY

/* prctl(PR_SQUEEZY, ...): -1 and errno on failure. */
long squeezy_assign(int partition, int wait_ms);
long squeezy_cancel(void);
long squeezy_get(pid_t pid);
long squeezy_join(pid_t pid);
/* The partition of the caller, which must be in one. */
int own_partition(void);

/* Skips the test where the kernel has no partitions. */
void require_partitions(void);
bool have_partitions(void);
int partitions(void);
u64 partition_bytes(void);
/* So much of a partition, in whole huge pages. */
u64 percent(unsigned int n);
u64 shared_bytes(void);
/* Waits until nobody is left in any partition; false when somebody stays. */
bool settle(void);

u64 counter(const char *name);
const char *partition_state(int partition);
bool partition_is(int partition, const char *state);
/* Whether it is kept by pages that have outlived the last process in it. */
bool partition_is_held(int partition);
int partition_users(int partition);
u64 partition_free(int partition);
/*
 * Touches @memory, which is as large as the caller's partition, until at most @left bytes of that
 * are free; returns how much of it has been touched.
 */
u64 fill_until(char *memory, u64 left);
u64 partition_managed(int partition);
u64 partition_start(int partition);
/* How many partitions are in this state. */
int partitions_in_state(const char *state);
const char *shrink_blocked(void);

#endif
