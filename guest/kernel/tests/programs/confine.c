// SPDX-License-Identifier: GPL-2.0
/*
 * Confinement: every private anonymous page of an assigned process lies in its partition,
 * whichever way it came to be; and nobody else's page does. For its files see files.c, for huge
 * pages huge.c, for faults that others cause remote.c.
 */
#define _GNU_SOURCE
#include "actor.h"
#include "harness.h"
#include "memory.h"
#include "pages.h"
#include "squeezy.h"
#include "system.h"
#include "uring.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

TEST_INSIDE(anonymous_memory)
{
	char *memory = map_anon(16 * MIB);

	fill(memory, 16 * MIB, 1);
	assert_range_in(memory, 16 * MIB, own_partition());
	assert_confined(getpid(), 16 * MIB / PAGE);
}

TEST_INSIDE(zero_page_that_is_written_later)
{
	char *memory = map_anon(4 * MIB);

	ASSERT(all_zero(memory, 4 * MIB), "not zero");
	fill(memory, 4 * MIB, 1);
	assert_range_in(memory, 4 * MIB, own_partition());
}

TEST_INSIDE(heap_by_brk)
{
	char *start = (char *)syscall(SYS_brk, 0), *end;

	start = (char *)(((uintptr_t)start + PAGE - 1) & ~(PAGE - 1));
	end = (char *)syscall(SYS_brk, start + 4 * MIB);
	ASSERT_EQ(end - start, 4 * MIB);
	fill(start, 4 * MIB, 1);
	assert_range_in(start, 4 * MIB, own_partition());
}

static void grow_stack(void *unused)
{
	char memory[4 * MIB];

	(void)unused;
	fill(memory, sizeof(memory), 1);
	assert_range_in(memory, sizeof(memory), own_partition());
}

TEST_INSIDE(stack)
{
	grow_stack(NULL);
}

ACTOR(has_long_arguments)
{
	/* Written by the process that executed this one, before the new memory was its own. */
	assert_range_in(argv[0], strlen(argv[0]), own_partition());
	assert_confined(getpid(), strlen(argv[0]) / PAGE);
}

TEST(arguments_of_execve)
{
	struct actor actor;
	char *text = malloc(100 * KIB);

	require_partitions();
	memset(text, 'x', 100 * KIB - 1);
	text[100 * KIB - 1] = 0;
	actor = actor_start(ANY, "has_long_arguments", text, NULL);
	actor_join(&actor);
}

static void write_all(void *memory)
{
	fill(memory, 8 * MIB, 2);
	assert_range_in(memory, 8 * MIB, own_partition());
	assert_confined(getpid(), 8 * MIB / PAGE);
}

TEST_INSIDE(copies_after_fork)
{
	char *memory = map_anon(8 * MIB);
	int i;

	fill(memory, 8 * MIB, 1);
	for (i = 0; i < 3; i++)
		in_child_ok(write_all, memory);
	ASSERT(filled(memory, 8 * MIB, 1), "a child's write changed its parent");
	/* The parent copies what a living child still shares. */
	fill(memory, 8 * MIB, 3);
	assert_range_in(memory, 8 * MIB, own_partition());
}

TEST_INSIDE(copies_in_a_storm_of_forks)
{
	char *memory = map_anon(8 * MIB);
	int i, status, failed = 0;

	fill(memory, 8 * MIB, 1);
	for (i = 0; i < 8; i++) {
		pid_t pid = OK(fork());

		if (!pid) {
			write_all(memory);
			_exit(0);
		}
	}
	fill(memory, 8 * MIB, 4);
	while (wait(&status) > 0)
		failed += status != 0;
	ASSERT_EQ(failed, 0);
	assert_confined(getpid(), 8 * MIB / PAGE);
}

TEST_INSIDE(copies_of_a_private_file_mapping)
{
	int fd = OK(open("/tmp/private", O_CREAT | O_RDWR | O_TRUNC, 0600));
	char *memory;
	u64 i;

	/* Its holes are pages of the partition, too, once they have been read. */
	OK(unlink("/tmp/private"));
	OK(ftruncate(fd, 4 * MIB));
	memory = mmap(NULL, 4 * MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
	ASSERT(memory != MAP_FAILED, "mmap: %m");
	/* Half of the pages are mapped before they are written, the others copied at once. */
	for (i = 0; i < 2 * MIB; i += PAGE)
		ASSERT_EQ(*(volatile char *)(memory + i), 0);
	fill(memory, 4 * MIB, 1);
	assert_range_in(memory, 4 * MIB, own_partition());
}

TEST_INSIDE(memory_that_mremap_moves_and_grows)
{
	char *memory = map_anon(4 * MIB), *moved;

	fill(memory, 4 * MIB, 1);
	moved = mremap(memory, 4 * MIB, 8 * MIB, MREMAP_MAYMOVE | MREMAP_FIXED, map_anon(8 * MIB));
	ASSERT(moved != MAP_FAILED, "mremap: %m");
	ASSERT(filled(moved, 4 * MIB, 1), "lost");
	fill(moved, 8 * MIB, 2);
	assert_range_in(moved, 8 * MIB, own_partition());
}

TEST_INSIDE(locked_and_populated_memory)
{
	char *memory = mmap(NULL, 4 * MIB, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);

	ASSERT(memory != MAP_FAILED, "mmap: %m");
	assert_range_in(memory, 4 * MIB, own_partition());
	memory = map_anon(4 * MIB);
	OK(mlock(memory, 4 * MIB));
	assert_range_in(memory, 4 * MIB, own_partition());
	memory = map_anon(4 * MIB);
	OK(madvise(memory, 4 * MIB, MADV_POPULATE_WRITE));
	assert_range_in(memory, 4 * MIB, own_partition());
}

static void *thread_writes(void *memory)
{
	char local[16 * KIB];

	fill(local, sizeof(local), 1);
	assert_range_in(local, sizeof(local), own_partition());
	fill(memory, MIB, 1);
	assert_range_in(memory, MIB, own_partition());
	return NULL;
}

TEST_INSIDE(memory_of_threads)
{
	pthread_t threads[8];
	int i;

	for (i = 0; i < 8; i++)
		ASSERT_EQ(pthread_create(&threads[i], NULL, thread_writes, map_anon(MIB)), 0);
	for (i = 0; i < 8; i++)
		pthread_join(threads[i], NULL);
	assert_confined(getpid(), 8 * MIB / PAGE);
}

TEST_INSIDE(copies_of_huge_pages)
{
	char *memory = map_huge(8 * MIB);
	int i;

	fill(memory, 8 * MIB, 1);
	for (i = 0; i < 2; i++)
		in_child_ok(write_all, memory);
	ASSERT(filled(memory, 8 * MIB, 1), "a child's write changed its parent");
}

TEST_INSIDE(pages_that_userfaultfd_brings)
{
	struct uffdio_api api = { .api = UFFD_API };
	struct uffdio_register reg;
	struct uffdio_copy copy;
	struct uffdio_zeropage zero;
	char *memory = map_anon(2 * MIB), *source = map_anon(MIB);
	int fd = syscall(SYS_userfaultfd, O_CLOEXEC);

	if (fd < 0)
		skip("no userfaultfd: %m");
	OK(ioctl(fd, UFFDIO_API, &api));
	reg = (struct uffdio_register){ .range = { (uintptr_t)memory, 2 * MIB },
					.mode = UFFDIO_REGISTER_MODE_MISSING };
	OK(ioctl(fd, UFFDIO_REGISTER, &reg));
	fill(source, MIB, 1);
	copy = (struct uffdio_copy){ .dst = (uintptr_t)memory, .src = (uintptr_t)source,
				     .len = MIB };
	OK(ioctl(fd, UFFDIO_COPY, &copy));
	zero = (struct uffdio_zeropage){ .range = { (uintptr_t)memory + MIB, MIB } };
	OK(ioctl(fd, UFFDIO_ZEROPAGE, &zero));
	ASSERT(filled(memory, MIB, 1), "lost");
	ASSERT(all_zero(memory + MIB, MIB), "not zero");
	fill(memory + MIB, MIB, 2);
	assert_range_in(memory, 2 * MIB, own_partition());
}

TEST_INSIDE(pages_of_io_uring_buffers)
{
	char *memory = map_anon(MIB);
	int ring = uring_create();

	/* Some there before they are pinned, some not. */
	fill(memory, 512 * KIB, 1);
	uring_register_buffer(ring, memory, MIB);
	assert_range_in(memory, MIB, own_partition());
	ASSERT(filled(memory, 512 * KIB, 1), "lost");
	fill(memory, MIB, 2);
	in_child_ok(write_all, map_anon(8 * MIB));
	assert_confined(getpid(), MIB / PAGE);
}

TEST_INSIDE(lazily_freed_memory_that_is_used_again)
{
	char *memory = map_anon(8 * MIB);
	int i;

	for (i = 0; i < 4; i++) {
		fill(memory, 8 * MIB, i);
		OK(madvise(memory, 8 * MIB, i % 2 ? MADV_FREE : MADV_DONTNEED));
	}
	fill(memory, 8 * MIB, 9);
	assert_range_in(memory, 8 * MIB, own_partition());
}

TEST_INSIDE(pages_stay_inside_while_memory_is_compacted)
{
	char *memory = map_anon(32 * MIB);
	u64 i;

	fill(memory, 32 * MIB, 1);
	/* Holes, so that there is something to compact. */
	for (i = 0; i < 32 * MIB; i += 2 * PAGE)
		OK(madvise(memory + i, PAGE, MADV_DONTNEED));
	if (!write_text("/proc/sys/vm/compact_memory", "1"))
		skip("no compaction: %m");
	assert_confined(getpid(), 16 * MIB / PAGE);
	for (i = PAGE; i < 32 * MIB; i += 2 * PAGE)
		ASSERT_EQ(*(u64 *)(memory + i), 1 + i);
}

TEST_INSIDE(pages_that_move_pages_is_asked_to_move_stay_inside)
{
	char *memory = map_anon(PAGE);
	int node = 0, status = -1;
	void *page = memory;

	fill(memory, PAGE, 1);
	if (syscall(SYS_move_pages, 0, 1ul, &page, &node, &status, 0) && errno == ENOSYS)
		skip("no move_pages: CONFIG_NUMA");
	assert_range_in(memory, PAGE, own_partition());
}

TEST_INSIDE(samepage_merging_is_refused_or_harmless)
{
	char *memory = map_anon(4 * MIB);
	struct audit seen;

	memset(memory, 0x5a, 4 * MIB);
	if (madvise(memory, 4 * MIB, MADV_MERGEABLE)) {
		ASSERT(errno == EINVAL || errno == EPERM || errno == EOPNOTSUPP, "%m");
		return;
	}
	write_text("/sys/kernel/mm/ksm/pages_to_scan", "10000");
	write_text("/sys/kernel/mm/ksm/sleep_millisecs", "1");
	write_text("/sys/kernel/mm/ksm/run", "1");
	sleep_ms(1000);
	write_text("/sys/kernel/mm/ksm/run", "2");
	audit(getpid(), own_partition(), &seen);
	ASSERT_EQ(seen.anon_outside, 0);
}

/* The other direction: what is not assigned stays out. */

static unsigned long inside_any(const struct places *seen)
{
	unsigned long sum = 0;
	int i;

	for (i = 0; i < SQUEEZY_MAX_PARTITIONS; i++)
		sum += seen->inside[i];
	return sum;
}

TEST(memory_of_others_is_in_no_partition)
{
	u64 bytes = ordinary_free() / 2;
	struct places seen;
	char *memory;

	require_partitions();
	if (bytes > 128 * MIB)
		bytes = 128 * MIB;
	memory = map_anon(bytes);
	fill(memory, bytes, 1);
	count_places(memory, bytes, &seen);
	ASSERT_EQ(inside_any(&seen), 0);
}

#define KPF_BUDDY	10
#define KPF_NOPAGE	20
#define KPF_OFFLINE	23

/* Fails if any page of a free partition is used. */
static void assert_unused(int partition)
{
	u64 pfn = partition_start(partition) / PAGE;
	u64 end = pfn + partition_bytes() / PAGE, used = 0, first = 0, first_flags = 0;
	static u64 flags[4096];
	int fd = OK(open("/proc/kpageflags", O_RDONLY)), i;

	while (pfn < end) {
		u64 want = end - pfn < 4096 ? end - pfn : 4096;

		ASSERT_EQ(pread(fd, flags, want * 8, pfn * 8), want * 8);
		/* Only the first page of a free block is marked; the others have no flags. */
		for (i = 0; i < (int)want; i++) {
			if (flags[i] & ~(1ull << KPF_BUDDY | 1ull << KPF_NOPAGE |
					 1ull << KPF_OFFLINE) & ((1ull << 32) - 1)) {
				first = used++ ? first : pfn + i;
				first_flags = used == 1 ? flags[i] : first_flags;
			}
		}
		pfn += want;
	}
	close(fd);
	ASSERT(!used, "%llu pages of partition %d are used, the first %#llx with flags %#llx",
	       used, partition, first, first_flags);
}

TEST(a_free_partition_serves_nobody)
{
	u64 bytes, at;
	char *memory;
	int i;

	require_partitions();
	bytes = ordinary_free() / 3 * 2;
	memory = map_anon(bytes);
	for (at = 0; at < bytes; at += PAGE)
		memory[at] = 1;
	for (i = 0; i < partitions(); i++) {
		if (!partition_is(i, "free"))
			continue;
		assert_unused(i);
		ASSERT_EQ(partition_free(i), partition_managed(i));
	}
}
