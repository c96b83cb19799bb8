/* SPDX-License-Identifier: GPL-2.0 */
/* Where a page really lies, according to /proc/PID/pagemap. */
#ifndef SQUEEZY_TEST_PAGES_H
#define SQUEEZY_TEST_PAGES_H

#include "memory.h"
#include "squeezy.h"

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
/* Whether they say that it is free. */
bool is_called_free(u64 pfn);
/* Reads what /proc/kcore has of a physical range; how many bytes it gave. */
u64 read_kcore(int kcore, u64 start, u64 end);

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

#endif
