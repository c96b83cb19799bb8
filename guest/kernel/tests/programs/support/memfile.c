// SPDX-License-Identifier: GPL-2.0
/* See memfile.h. */
#define _GNU_SOURCE
#include "memfile.h"
#include "memory.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <unistd.h>

char *map_file(int fd, u64 bytes)
{
	char *memory;

	OK(ftruncate(fd, bytes));
	memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	ASSERT(memory != MAP_FAILED, "mmap: %m");
	return memory;
}

int file_of_my_own(const char *options)
{
	OK(unshare(CLONE_NEWNS));
	OK(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL));
	OK(mount("tmpfs", "/tmp", "tmpfs", 0, options));
	return OK(open("/tmp/file", O_CREAT | O_RDWR, 0600));
}

u64 write_zeroes(int fd, u64 bytes)
{
	static char zeroes[MIB];
	u64 written = 0;
	ssize_t got;

	while (written < bytes) {
		got = write(fd, zeroes, sizeof(zeroes));
		if (got < 0)
			break;
		written += got;
	}
	return written;
}
