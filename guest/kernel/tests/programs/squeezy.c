// SPDX-License-Identifier: GPL-2.0
/* See squeezy.h. */
#define _GNU_SOURCE
#include "squeezy.h"
#include "harness.h"

#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <stdarg.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#define SYSFS "/sys/kernel/mm/squeezy/"
/* A slot starts at a multiple of a memory section. */
#define SLOT_ALIGN (128 * MIB)

long squeezy_assign(int partition, int wait_ms)
{
	return prctl(PR_SQUEEZY, PR_SQUEEZY_ASSIGN, (long)partition, (long)wait_ms, 0);
}

long squeezy_cancel(void)
{
	return prctl(PR_SQUEEZY, PR_SQUEEZY_CANCEL, 0, 0, 0);
}

long squeezy_get(pid_t pid)
{
	return prctl(PR_SQUEEZY, PR_SQUEEZY_GET, (long)pid, 0, 0);
}

bool read_text(const char *path, char *text, size_t size)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t got;

	if (fd < 0)
		return false;
	got = read(fd, text, size - 1);
	close(fd);
	if (got < 0)
		return false;
	if (got && text[got - 1] == '\n')
		got--;
	text[got] = 0;
	return true;
}

u64 read_number(const char *path)
{
	char text[64], *end;
	u64 value;

	ASSERT(read_text(path, text, sizeof(text)), "%s: %m", path);
	value = strtoull(text, &end, 0);
	ASSERT(end != text && !*end, "%s holds '%s'", path, text);
	return value;
}

bool write_text(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC), saved;
	ssize_t put;

	if (fd < 0)
		return false;
	put = write(fd, text, strlen(text));
	saved = errno;
	close(fd);
	errno = saved;
	return put == (ssize_t)strlen(text);
}

u64 read_field(const char *path, const char *field)
{
	FILE *file = fopen(path, "re");
	char line[256];
	size_t length = strlen(field);

	ASSERT(file, "%s: %m", path);
	while (fgets(line, sizeof(line), file)) {
		if (strncmp(line, field, length) || !strchr(": \t", line[length]))
			continue;
		fclose(file);
		return strtoull(line + length + 1, NULL, 10);
	}
	FAIL("%s has no %s", path, field);
}

u64 ordinary_free(void)
{
	FILE *file = fopen("/proc/zoneinfo", "re");
	unsigned long long pages, sum = 0;
	char line[256], zone[32] = "";

	ASSERT(file, "/proc/zoneinfo: %m");
	while (fgets(line, sizeof(line), file)) {
		sscanf(line, "Node %*d, zone %31s", zone);
		if (sscanf(line, " pages free %llu", &pages) == 1 &&
		    (!strncmp(zone, "DMA", 3) || !strcmp(zone, "Normal") ||
		     !strcmp(zone, "Movable")))
			sum += pages;
	}
	fclose(file);
	return sum * PAGE;
}

bool have_partitions(void)
{
	return !access(SYSFS "partitions", R_OK);
}

void require_partitions(void)
{
	if (!have_partitions())
		skip("this kernel has no partitions: no " SYSFS);
}

int partitions(void)
{
	return read_number(SYSFS "partitions");
}

u64 partition_bytes(void)
{
	return read_number(SYSFS "partition_size");
}

u64 percent(unsigned int n)
{
	return partition_bytes() / 100 * n / HUGE_PAGE * HUGE_PAGE;
}

u64 memory_block_bytes(void)
{
	char text[64];

	ASSERT(read_text("/sys/devices/system/memory/block_size_bytes", text, sizeof(text)), "%m");
	return strtoull(text, NULL, 16);
}

u64 shared_bytes(void)
{
	return read_number(SYSFS "shared_size");
}

u64 counter(const char *name)
{
	char path[128];

	snprintf(path, sizeof(path), SYSFS "counters/%s", name);
	return read_number(path);
}

static void partition_file(int partition, const char *name, char *text, size_t size)
{
	char path[128];

	snprintf(path, sizeof(path), SYSFS "partition%d/%s", partition, name);
	ASSERT(read_text(path, text, size), "%s: %m", path);
}

static u64 partition_number(int partition, const char *name)
{
	char text[64];

	partition_file(partition, name, text, sizeof(text));
	return strtoull(text, NULL, 0);
}

const char *partition_state(int partition)
{
	static char text[64];

	partition_file(partition, "state", text, sizeof(text));
	return text;
}

bool partition_is(int partition, const char *state)
{
	return !strcmp(partition_state(partition), state);
}

int partition_users(int partition)
{
	return partition_number(partition, "users");
}

u64 partition_free(int partition)
{
	return partition_number(partition, "free_bytes");
}

u64 partition_managed(int partition)
{
	return partition_number(partition, "managed_bytes");
}

u64 partition_start(int partition)
{
	return partition_number(partition, "start_address");
}

int partitions_in_state(const char *state)
{
	int count = 0, n = partitions(), i;

	for (i = 0; i < n; i++)
		count += partition_is(i, state);
	return count;
}

const char *shrink_blocked(void)
{
	static char text[256];

	ASSERT(read_text(SYSFS "shrink_blocked", text, sizeof(text)), "%m");
	return text;
}

static bool settled(void)
{
	int n = partitions(), i;

	for (i = 0; i < n; i++)
		if (partition_users(i) || partition_is(i, "assigned") ||
		    partition_is(i, "draining") || partition_is(i, "quarantined"))
			return false;
	return true;
}

bool settle(void)
{
	int n, i;

	if (!have_partitions() || WAIT_FOR(settled(), 10000))
		return true;
	n = partitions();
	for (i = 0; i < n; i++)
		if (!partition_is(i, "free") && !partition_is(i, "unplugged") &&
		    !partition_is(i, "absent"))
			note("partition %d is %s, users %d, %llu of %llu bytes free",
			     i, partition_state(i), partition_users(i), partition_free(i),
			     partition_managed(i));
	return false;
}

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

#define KPF_ZERO_PAGE	24

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

void *map_anon(u64 bytes)
{
	void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	ASSERT(p != MAP_FAILED, "mmap of %llu bytes: %m", bytes);
	return p;
}

void *map_huge(u64 bytes)
{
	uintptr_t p = (uintptr_t)map_anon(bytes + HUGE_PAGE);

	p = (p + HUGE_PAGE - 1) & ~(HUGE_PAGE - 1);
	if (madvise((void *)p, bytes, MADV_HUGEPAGE))
		skip("no transparent huge pages: %m");
	return (void *)p;
}

void fill(void *start, u64 bytes, u64 seed)
{
	u64 at;

	for (at = 0; at < bytes; at += PAGE)
		*(u64 *)((char *)start + at) = seed + at;
}

bool filled(const void *start, u64 bytes, u64 seed)
{
	u64 at;

	for (at = 0; at < bytes; at += PAGE)
		if (*(u64 *)((char *)start + at) != seed + at)
			return false;
	return true;
}

bool all_zero(const void *start, u64 bytes)
{
	const u64 *p = start;
	u64 i;

	for (i = 0; i < bytes / sizeof(*p); i++)
		if (p[i])
			return false;
	return true;
}

void make_cgroup(u64 limit)
{
	char text[32];

	if (access("/sys/fs/cgroup/cgroup.controllers", R_OK))
		skip("no cgroup v2 at /sys/fs/cgroup");
	rmdir(CGROUP);
	write_text("/sys/fs/cgroup/cgroup.subtree_control", "+memory");
	OK(mkdir(CGROUP, 0755));
	snprintf(text, sizeof(text), "%llu", limit);
	ASSERT(write_text(CGROUP "/memory.max", text), "memory.max: %m");
}

void enter_cgroup(void)
{
	ASSERT(write_text(CGROUP "/cgroup.procs", "0"), "cgroup.procs: %m");
}

void remove_cgroup(void)
{
	ASSERT(WAIT_FOR(!rmdir(CGROUP), 5000), "rmdir: %m");
}

void bring_loopback_up(void)
{
	struct ifreq request = { .ifr_name = "lo" };
	int fd = OK(socket(AF_INET, SOCK_DGRAM, 0));

	if (ioctl(fd, SIOCGIFFLAGS, &request))
		skip("no loopback: %m");
	request.ifr_flags |= IFF_UP;
	OK(ioctl(fd, SIOCSIFFLAGS, &request));
	close(fd);
}

int kmsg_mark(void)
{
	int fd = OK(open("/dev/kmsg", O_RDONLY | O_NONBLOCK | O_CLOEXEC));

	OK(lseek(fd, 0, SEEK_END));
	return fd;
}

bool kmsg_has(int mark, const char *a, const char *b)
{
	char record[1024];
	ssize_t got;

	while ((got = read(mark, record, sizeof(record) - 1)) > 0 || errno == EPIPE) {
		if (got <= 0)
			continue;
		record[got] = 0;
		if (strstr(record, a) && strstr(record, b))
			return true;
	}
	return false;
}
