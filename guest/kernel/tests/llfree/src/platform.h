/* SPDX-License-Identifier: GPL-2.0-only */
/* What the allocator needs of the kernel, in a program. */
#ifndef _LLFREE_TESTS_PLATFORM_H
#define _LLFREE_TESTS_PLATFORM_H

#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef uint8_t u8;
typedef uint16_t u16;
typedef uint32_t u32;
typedef uint64_t u64;

/* <sys/cdefs.h> has __always_inline. */
#define noinline	__attribute__((noinline))
#define ALIGN(value, to) (((value) + (to) - 1) / (to) * (to))
#define DIV_ROUND_UP(value, by) (((value) + (by) - 1) / (by))
#define min(a, b)	((a) < (b) ? (a) : (b))

/* Called before each access to the shared state: the test decides who is next. */
void llfree_step(void);
/* Called when another value was there than the one that was to be changed. */
void llfree_failed(void);

#define llfree_load(pointer) ({				\
	llfree_step();						\
	__atomic_load_n(pointer, __ATOMIC_ACQUIRE);		\
})
#define llfree_store(pointer, value) ({			\
	llfree_step();						\
	__atomic_store_n(pointer, value, __ATOMIC_RELEASE);	\
})
#define llfree_cmpxchg(pointer, old, new) ({			\
	__typeof__(*(pointer)) __seen = (old);			\
								\
	llfree_step();						\
	if (!__atomic_compare_exchange_n(pointer, &__seen, new, false, \
					 __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) \
		llfree_failed();				\
	__seen;							\
})
#define llfree_count(value)	__builtin_popcount(value)
#define llfree_count_word(word)	__builtin_popcountll(word)
#define llfree_first(word)	__builtin_ctzll(word)

#endif
