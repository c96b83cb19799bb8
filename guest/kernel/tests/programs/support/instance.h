/* SPDX-License-Identifier: GPL-2.0 */
/* The usual instance: it has filled some memory, and says whether that is as it was. */
#ifndef SQUEEZY_TEST_INSTANCE_H
#define SQUEEZY_TEST_INSTANCE_H

#include "actor.h"

/* Starts one with @bytes in @partition, which may be NOBODY; it stays until it is killed. */
struct actor start_instance(int partition, u64 bytes);
/* Fails unless it lives and its memory is as it was. */
void assert_intact(struct actor *instance);

#endif
