/*
 * Gives free pools inside of pymalloc's arenas back to the system.
 *
 * pymalloc, the allocator of CPython's objects up to 512 bytes, has arenas of 1 MiB, divided into
 * pools of 16 KiB, each with blocks of one size. It unmaps an arena when all of its pools are free.
 * One object in use keeps 1 MiB; the free pools around it stay resident.
 *
 * Why it is safe to take pages of a free pool away:
 *
 * 1. Nobody else touches pools meanwhile. pymalloc is only called with the lock of its interpreter
 *    (the GIL) held, and has no lock of its own; ctypes.PyDLL calls us with that lock held, and we
 *    do not release it. Interpreters with locks of their own have arenas of their own, which cannot
 *    be told apart here: with more than one interpreter nothing is done. To make another one takes
 *    the lock of one that is there, which is ours.
 * 2. Nobody reads a block of a free pool. Its count of blocks in use is 0, so there is no object in
 *    it; the list of its free blocks is read when the pool is used again for the same size, and for
 *    no other. The size that we write into its header is none, so pymalloc sets up the pool as if
 *    it came fresh from its arena (allocate_from_new_pool() in obmalloc.c: "if (pool->szidx ==
 *    size)", else it writes header and list anew).
 * 3. The header stays: the first page of the pool is not given back, as pymalloc's list of free
 *    pools goes through it.
 * 4. The addresses are pools. Arenas are those that the interpreter has told us of, through
 *    PyObject_SetArenaAllocator(), which is public; those from before we were there are left alone.
 *    Every header in an arena has to be what pymalloc writes, or the whole arena is left alone. That
 *    an arena is private anonymous memory is known because pymalloc's own allocator has made it.
 *
 * The form of a header (struct pool_header) and the sizes are those of CPython 3.11 to 3.14 on 64
 * bits, with the radix tree. There is no check at run time for what a later version does: pools.py
 * has the list of the versions that are known.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

#define ARENA_SIZE ((size_t)1 << 20)
#define POOL_SIZE ((size_t)1 << 14)
#define BLOCK_ALIGNMENT 16
#define SIZE_CLASSES 32 /* blocks of 16, 32, ... 512 bytes */

/* A size class that pymalloc never asks for; it gives it to a pool that was never used itself. */
#define NO_SIZE_CLASS 0xffff

/* Arenas that are noted: 4 GiB of them. What is in others is not given back. */
#define MOST_ARENAS 4096

/* PyObjectArenaAllocator of CPython's headers, part of its public interface since 3.4. */
struct arena_allocator {
	void *context;
	void *(*allocate)(void *context, size_t size);
	void (*release)(void *context, void *address, size_t size);
};

/* struct pool_header of obmalloc.c. */
struct pool {
	union {
		void *padding;
		unsigned int count; /* blocks in use */
	} in_use;
	void *free_block;
	struct pool *next;
	struct pool *previous;
	unsigned int arena_index;
	unsigned int size_class;
	unsigned int next_offset;    /* of the next block that was never used; 0: the pool never was */
	unsigned int most_next_offset; /* of the last block */
};

_Static_assert(sizeof(struct pool) == 48, "the header of a pool is 48 bytes long");

/* What we need of CPython, without its headers: this library is for several versions of it. */
extern void PyObject_GetArenaAllocator(struct arena_allocator *allocator);
extern void PyObject_SetArenaAllocator(struct arena_allocator *allocator);
extern void *PyInterpreterState_Head(void);
extern void *PyInterpreterState_Next(void *interpreter);

#define EXPORTED __attribute__((visibility("default")))

static struct arena_allocator original;

/*
 * The arenas there are; 0 is a free place. Atomic, because interpreters with locks of their own
 * allocate at the same time.
 */
static _Atomic uintptr_t arenas[MOST_ARENAS];

static void replace(uintptr_t from, uintptr_t to)
{
	for (size_t i = 0; i < MOST_ARENAS; i++) {
		uintptr_t expected = from;

		if (atomic_load_explicit(&arenas[i], memory_order_relaxed) == from &&
		    atomic_compare_exchange_strong(&arenas[i], &expected, to))
			return;
	}
}

static void *allocate(void *context, size_t size)
{
	void *address = original.allocate(context, size);

	if (address && size == ARENA_SIZE)
		replace(0, (uintptr_t)address);
	return address;
}

static void release(void *context, void *address, size_t size)
{
	/* Before it is unmapped: another thread may be given the same address at once. */
	replace((uintptr_t)address, 0);
	original.release(context, address, size);
}

/* Whether both are in the same program or library. */
static int in_same_object(void *one, void *other)
{
	Dl_info first, second;

	return dladdr(one, &first) && dladdr(other, &second) && first.dli_fbase == second.dli_fbase;
}

/* Begins to note arenas. Returns NULL, or why nothing will be given back. */
EXPORTED const char *squeezy_pools_install(void)
{
	struct arena_allocator ours = { NULL, allocate, release };

	if (original.allocate)
		return NULL;
	if (sizeof(void *) != 8 || (size_t)sysconf(_SC_PAGESIZE) * 2 > POOL_SIZE)
		return "pools are not larger than pages here";
	PyObject_GetArenaAllocator(&original);
	if (!in_same_object((void *)original.allocate, (void *)PyObject_GetArenaAllocator)) {
		original.allocate = NULL;
		return "another allocator of arenas is there already";
	}
	ours.context = original.context;
	PyObject_SetArenaAllocator(&ours);
	return NULL;
}

/* Whether this is a header as pymalloc writes it, or as we have left it. */
static int is_pool(const struct pool *pool, unsigned int arena_index)
{
	unsigned int size, most_blocks;

	if (pool->arena_index != arena_index)
		return 0;
	if (pool->size_class == NO_SIZE_CLASS)
		return pool->in_use.count == 0;
	if (pool->size_class >= SIZE_CLASSES)
		return 0;
	size = (pool->size_class + 1) * BLOCK_ALIGNMENT;
	most_blocks = (POOL_SIZE - sizeof(*pool)) / size;
	return pool->most_next_offset == POOL_SIZE - size && pool->next_offset <= POOL_SIZE &&
	       pool->next_offset >= sizeof(*pool) + size && pool->in_use.count <= most_blocks;
}

/*
 * Counts the pools from first on, up to end, that were ever used. They are used from the lowest
 * address on, so after one that never was there is none. Returns 0 if there is anything unknown.
 */
static size_t count_pools(uintptr_t first, uintptr_t end)
{
	const struct pool *pool = (const struct pool *)first;
	unsigned int arena_index = pool->arena_index;
	size_t count = 0;

	for (uintptr_t at = first; at + POOL_SIZE <= end; at += POOL_SIZE, count++) {
		pool = (const struct pool *)at;
		if (pool->next_offset == 0)
			break;
		if (!is_pool(pool, arena_index))
			return 0;
	}
	return count;
}

/* Gives back the free pools of one arena. Returns how many bytes. */
static size_t release_arena(uintptr_t arena, size_t page)
{
	uintptr_t first = (arena + POOL_SIZE - 1) & ~(uintptr_t)(POOL_SIZE - 1);
	size_t count = count_pools(first, arena + ARENA_SIZE), released = 0;

	for (size_t i = 0; i < count; i++) {
		struct pool *pool = (struct pool *)(first + i * POOL_SIZE);

		if (pool->in_use.count != 0 || pool->size_class == NO_SIZE_CLASS)
			continue;
		/* First: without its pages, the list of its free blocks ends early. */
		pool->size_class = NO_SIZE_CLASS;
		if (madvise((char *)pool + page, POOL_SIZE - page, MADV_DONTNEED) == 0)
			released += POOL_SIZE - page;
	}
	return released;
}

/* Gives back the free pools of all arenas that are known. Returns how many bytes. */
EXPORTED size_t squeezy_pools_release(void)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE), released = 0;

	if (!original.allocate || PyInterpreterState_Next(PyInterpreterState_Head()))
		return 0;
	for (size_t i = 0; i < MOST_ARENAS; i++) {
		uintptr_t arena = atomic_load(&arenas[i]);

		if (arena)
			released += release_arena(arena, page);
	}
	return released;
}
