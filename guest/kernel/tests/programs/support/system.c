// SPDX-License-Identifier: GPL-2.0
/* See system.h. */
#define _GNU_SOURCE
#include "system.h"
#include "memory.h"

#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

bool read_text(const char *path, char *text, size_t size)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	size_t sum = 0;
	ssize_t got;

	if (fd < 0)
		return false;
	while ((got = read(fd, text + sum, size - 1 - sum)) > 0)
		sum += got;
	close(fd);
	if (got < 0)
		return false;
	if (sum && text[sum - 1] == '\n')
		sum--;
	text[sum] = 0;
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

void drop_caches(void)
{
	sync();
	ASSERT(write_text("/proc/sys/vm/drop_caches", "3"), "drop_caches: %m");
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

u64 memory_block_bytes(void)
{
	char text[64];

	ASSERT(read_text("/sys/devices/system/memory/block_size_bytes", text, sizeof(text)), "%m");
	return strtoull(text, NULL, 16);
}

u64 oom_kills(void)
{
	return read_field("/proc/vmstat", "oom_kill");
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

const char *kmsg_find(int mark, const char *words)
{
	static char record[1024];
	ssize_t got;

	while ((got = read(mark, record, sizeof(record) - 1)) > 0 || errno == EPIPE) {
		if (got <= 0)
			continue;
		record[got] = 0;
		if (strstr(record, words))
			return record;
	}
	return NULL;
}

bool kmsg_has(int mark, const char *a, const char *b)
{
	const char *record;

	while ((record = kmsg_find(mark, a)))
		if (strstr(record, b))
			return true;
	return false;
}
