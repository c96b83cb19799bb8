/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What tests ask of the kernel's interface: prctl(2), /sys/kernel/mm/squeezy and, to see where a
 * page really lies, /proc/PID/pagemap.
 */
#ifndef SQUEEZY_TEST_SQUEEZY_H
#define SQUEEZY_TEST_SQUEEZY_H

#include "harness.h"

#include <linux/squeezy.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define KIB		1024ull
#define MIB		(1024 * KIB)
#define PAGE		4096ull
#define HUGE_PAGE	(2 * MIB)

/* prctl(PR_SQUEEZY, ...): -1 and errno on failure. */
long squeezy_assign(int partition, int wait_ms);
long squeezy_cancel(void);
long squeezy_get(pid_t pid);

/* Skips the test where the kernel has no partitions. */
void require_partitions(void);
bool have_partitions(void);
int partitions(void);
u64 partition_bytes(void);
/* So much of a partition, in whole huge pages. */
u64 percent(unsigned int n);
u64 shared_bytes(void);
/* What Linux adds and onlines as one; slots are whole ones. */
u64 memory_block_bytes(void);
/* Waits until nobody is left in any partition; false when somebody stays. */
bool settle(void);

u64 counter(const char *name);
const char *partition_state(int partition);
bool partition_is(int partition, const char *state);
int partition_users(int partition);
u64 partition_free(int partition);
u64 partition_managed(int partition);
u64 partition_start(int partition);
/* How many partitions are in this state. */
int partitions_in_state(const char *state);
const char *shrink_blocked(void);

/* Where a page frame lies: a partition's number, or one of these. */
#define IN_SHARED	(-1)
#define IN_ORDINARY	(-2)
int place_of(u64 pfn);

#define PAGEMAP_PRESENT		(1ull << 63)
#define PAGEMAP_FILE		(1ull << 61)	/* file page or shared anonymous */
#define PAGEMAP_PFN		((1ull << 55) - 1)
u64 pagemap_entry(pid_t pid, const void *address);
/* The page frame behind an address of the caller; fails when none is there. */
u64 pfn_of(const void *address);
/* The flags of a page frame, from /proc/kpageflags. */
u64 page_flags(u64 pfn);

/* The pages a process maps, counted by kind and place. */
struct audit {
	unsigned long anon_inside;	/* private anonymous, in the partition asked about */
	unsigned long anon_outside;	/* private anonymous, anywhere else */
	unsigned long file_shared;	/* file or shared memory, in the shared partition */
	unsigned long file_ordinary;
	unsigned long file_partition;	/* in any partition: right for tmpfs and the like only */
	char first_outside[160];	/* the line of /proc/PID/maps of the first one */
};

/* Looks at every page that @pid maps. */
void audit(pid_t pid, int partition, struct audit *result);
/* Fails unless all of @pid's private anonymous pages, at least @least, are in its partition. */
void assert_confined(pid_t pid, unsigned long least);

/* Where the pages of a range of the caller are; all of it must be mapped. */
struct places {
	unsigned long shared, ordinary;
	unsigned long inside[SQUEEZY_MAX_PARTITIONS];
};

void count_places(const void *start, u64 bytes, struct places *result);
/* Fails unless every page of the range is there and in this partition. */
void assert_range_in(const void *start, u64 bytes, int partition);

/* Fresh private anonymous memory. */
void *map_anon(u64 bytes);
/* The same, aligned to a huge page and advised MADV_HUGEPAGE. */
void *map_huge(u64 bytes);
/* Writes @seed and the offset into every page. */
void fill(void *start, u64 bytes, u64 seed);
/* Whether every page still holds what fill() wrote. */
bool filled(const void *start, u64 bytes, u64 seed);
/* Whether every byte is zero. */
bool all_zero(const void *start, u64 bytes);

/* Small files: content without the newline; the value, which must be a number. */
bool read_text(const char *path, char *text, size_t size);
u64 read_number(const char *path);
bool write_text(const char *path, const char *text);
/* A line "NAME VALUE" of /proc/vmstat, /proc/meminfo (in kB), memory.events and the like. */
u64 read_field(const char *path, const char *field);

/* Bytes free outside of partitions: in the node's own zones. */
u64 ordinary_free(void);

/* A cgroup with this memory.max, in bytes; the caller enters it. */
#define CGROUP "/sys/fs/cgroup/selftest"
#define NO_LIMIT (~0ULL)
void make_cgroup(u64 limit);
void enter_cgroup(void);
/* Waits until nobody is in it any more, and removes it. */
void remove_cgroup(void);

/* The network namespace of a test VM, and a new one, has an interface that is down. */
void bring_loopback_up(void);

/* The kernel log from now on: kmsg_mark() returns a descriptor for kmsg_has(). */
int kmsg_mark(void);
bool kmsg_has(int mark, const char *a, const char *b);

#endif
