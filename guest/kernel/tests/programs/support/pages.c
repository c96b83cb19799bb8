// SPDX-License-Identifier: GPL-2.0
/* See pages.h. */
#define _GNU_SOURCE
#include "pages.h"

#include <elf.h>
#include <fcntl.h>
#include <linux/kernel-page-flags.h>
#include <pthread.h>
#include <string.h>
#include <unistd.h>

/* A slot starts at a multiple of a memory section. */
#define SLOT_ALIGN (128 * MIB)

/* Where the partitions are does not change while the guest runs. */
static struct {
	u64 starts[SQUEEZY_MAX_PARTITIONS], size, shared;
	int n;
} region;

static void read_region(void)
{
	int i;

	region.size = partition_bytes();
	region.shared = shared_bytes();
	region.n = partitions();
	for (i = 0; i < region.n; i++)
		region.starts[i] = partition_start(i);
}

int place_of(u64 pfn)
{
	/* Threads of one test ask at the same time. */
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	u64 address = pfn * PAGE, *starts = region.starts, size, shared, shared_slot;
	int i;

	pthread_once(&once, read_region);
	size = region.size;
	shared = region.shared;
	for (i = 0; i < region.n; i++)
		if (address >= starts[i] && address < starts[i] + size)
			return i;
	shared_slot = (shared + SLOT_ALIGN - 1) / SLOT_ALIGN * SLOT_ALIGN;
	if (address >= starts[0] - shared_slot && address < starts[0] - shared_slot + shared)
		return IN_SHARED;
	return IN_ORDINARY;
}

u64 pagemap_entry(pid_t pid, const void *address)
{
	u64 entry;
	char path[64];
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/pagemap", pid);
	fd = OK(open(path, O_RDONLY | O_CLOEXEC));
	ASSERT_EQ(pread(fd, &entry, 8, (uintptr_t)address / PAGE * 8), 8);
	close(fd);
	return entry;
}

/* The page frame of a pagemap entry of the caller's page at @address. */
static u64 entry_pfn(u64 entry, const void *address)
{
	ASSERT(entry & PAGEMAP_PRESENT, "nothing is mapped at %p", address);
	ASSERT(entry & PAGEMAP_PFN, "page frame numbers are hidden: CAP_SYS_ADMIN is missing");
	return entry & PAGEMAP_PFN;
}

u64 pfn_of(const void *address)
{
	return entry_pfn(pagemap_entry(getpid(), address), address);
}

void count_places(const void *start, u64 bytes, struct places *result)
{
	/* Threads of one test count at the same time. */
	static __thread u64 entries[4096];
	int fd = OK(open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC)), i, place;
	u64 at = 0;

	memset(result, 0, sizeof(*result));
	while (at < bytes) {
		u64 want = (bytes - at + PAGE - 1) / PAGE;

		want = want < 4096 ? want : 4096;
		ASSERT_EQ(pread(fd, entries, want * 8, ((uintptr_t)start + at) / PAGE * 8),
			  want * 8);
		for (i = 0; i < (int)want; i++, at += PAGE) {
			place = place_of(entry_pfn(entries[i], (char *)start + at));
			if (place == IN_SHARED)
				result->shared++;
			else if (place == IN_ORDINARY)
				result->ordinary++;
			else
				result->inside[place]++;
		}
	}
	close(fd);
}

u64 page_flags(u64 pfn)
{
	static int fd = -1;
	u64 flags;

	if (fd < 0)
		fd = OK(open("/proc/kpageflags", O_RDONLY | O_CLOEXEC));
	ASSERT(pread(fd, &flags, 8, pfn * 8) == 8, "/proc/kpageflags at %#llx: %m", pfn);
	return flags;
}

bool is_called_free(u64 pfn)
{
	return page_flags(pfn) >> KPF_BUDDY & 1;
}

static void audit_page(u64 entry, int partition, const char *mapping, struct audit *result)
{
	u64 pfn = entry & PAGEMAP_PFN;
	int place;

	if (!(entry & PAGEMAP_PRESENT) || !pfn)
		return;
	place = place_of(pfn);
	if (entry & PAGEMAP_FILE) {
		if (place >= 0)
			result->file_partition++;
		else if (place == IN_SHARED)
			result->file_shared++;
		else
			result->file_ordinary++;
	} else if (place == partition) {
		result->anon_inside++;
	} else if (!(page_flags(pfn) >> KPF_ZERO_PAGE & 1)) {
		if (!result->anon_outside++)
			snprintf(result->first_outside, sizeof(result->first_outside),
				 "frame %#llx in %d: %.100s", pfn, place, mapping);
	}
}

void audit(pid_t pid, int partition, struct audit *result)
{
	static u64 entries[4096];
	u64 start, end, at;
	char path[64], line[512];
	int pagemap, i;
	ssize_t got;
	FILE *maps;

	memset(result, 0, sizeof(*result));
	snprintf(path, sizeof(path), "/proc/%d/maps", pid);
	maps = fopen(path, "re");
	ASSERT(maps, "%s: %m", path);
	snprintf(path, sizeof(path), "/proc/%d/pagemap", pid);
	pagemap = OK(open(path, O_RDONLY | O_CLOEXEC));
	while (fgets(line, sizeof(line), maps)) {
		ASSERT_EQ(sscanf(line, "%llx-%llx", &start, &end), 2);
		line[strcspn(line, "\n")] = 0;
		if (strstr(line, "[v"))		/* vdso, vvar, vsyscall: the kernel's own pages */
			continue;
		for (at = start; at < end; at += got / 8 * PAGE) {
			size_t want = (end - at) / PAGE * 8;

			if (want > sizeof(entries))
				want = sizeof(entries);
			got = pread(pagemap, entries, want, at / PAGE * 8);
			ASSERT(got >= 8, "%s: %m", path);
			for (i = 0; i < got / 8; i++)
				audit_page(entries[i], partition, line, result);
		}
	}
	fclose(maps);
	close(pagemap);
}

void assert_confined(pid_t pid, unsigned long least)
{
	long partition = squeezy_get(pid);
	struct audit result;

	ASSERT(partition >= 0, "process %d is in no partition: %m", pid);
	audit(pid, partition, &result);
	ASSERT(!result.anon_outside, "%lu anonymous pages outside partition %ld; first: %s",
	       result.anon_outside, partition, result.first_outside);
	ASSERT(!result.file_partition, "%lu file or shared pages in a partition",
	       result.file_partition);
	ASSERT_GE(result.anon_inside, least);
}

void assert_range_in(const void *start, u64 bytes, int partition)
{
	/* A range that starts within a page has a page more. */
	u64 pages = ((uintptr_t)start % PAGE + bytes + PAGE - 1) / PAGE;
	const char *first = (char *)((uintptr_t)start / PAGE * PAGE);
	struct places seen;

	count_places(first, pages * PAGE, &seen);
	ASSERT(seen.inside[partition] == pages,
	       "%lu of %llu pages are in partition %d, %lu shared, %lu ordinary",
	       seen.inside[partition], pages, partition, seen.shared, seen.ordinary);
}

u64 read_kcore(int kcore, u64 start, u64 end)
{
	static char buffer[64 * 1024];
	Elf64_Ehdr header;
	Elf64_Phdr segment;
	u64 sum = 0;
	int i;

	ASSERT_EQ(pread(kcore, &header, sizeof(header), 0), sizeof(header));
	for (i = 0; i < header.e_phnum; i++) {
		u64 from, to, at;

		ASSERT_EQ(pread(kcore, &segment, sizeof(segment),
				header.e_phoff + i * sizeof(segment)), sizeof(segment));
		if (segment.p_type != PT_LOAD || segment.p_paddr == (u64)-1)
			continue;
		from = segment.p_paddr > start ? segment.p_paddr : start;
		to = segment.p_paddr + segment.p_memsz < end ?
		     segment.p_paddr + segment.p_memsz : end;
		for (at = from; at < to; at += sizeof(buffer)) {
			ssize_t got = pread(kcore, buffer, sizeof(buffer),
					    segment.p_offset + at - segment.p_paddr);

			ASSERT(got >= 0, "/proc/kcore at %#llx: %m", at);
			sum += got;
		}
	}
	return sum;
}
