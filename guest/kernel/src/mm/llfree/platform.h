/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What the allocator needs of the kernel. Programs that test it bring their own
 * platform.h.
 *
 * The other side of the shared state is a process of the host. So no operation
 * may be one that the kernel patches for the processors that it sees itself: on
 * a guest with one processor the LOCK prefix of cmpxchg() is gone, and smp_*()
 * are compiler barriers only. sync_cmpxchg() and virt_*() stay what they are.
 */
#ifndef _MM_LLFREE_PLATFORM_H
#define _MM_LLFREE_PLATFORM_H

#include <linux/align.h>
#include <linux/bitops.h>
#include <linux/compiler.h>
#include <linux/errno.h>
#include <linux/limits.h>
#include <linux/math.h>
#include <linux/minmax.h>
#include <linux/string.h>
#include <linux/types.h>
#include <asm/barrier.h>
#include <asm/sync_bitops.h>

/* What was written before a value that is seen here is seen after it. */
#define llfree_load(pointer)		virt_load_acquire(pointer)
/* What was written before is seen by whoever sees this value. */
#define llfree_store(pointer, value)	virt_store_release(pointer, value)
/* A full barrier, whether it succeeds or not. The value that was there. */
#define llfree_cmpxchg(pointer, old, new) sync_cmpxchg(pointer, old, new)
#define llfree_count(value)		hweight32(value)
#define llfree_count_word(word)		hweight64(word)
#define llfree_first(word)		__ffs64(word)

#endif
