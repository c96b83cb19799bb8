/* Attacks with files: what is in them, how many there are, their names and attributes. */
#define _GNU_SOURCE
#include "hostile.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#define PAGE 4096

static void fill_directory(const char *directory)
{
	char path[64];
	int i, fd;

	for (i = 0;; i++) {
		snprintf(path, sizeof(path), "%s/hostile-%d-%d", directory, getpid(), i);
		fd = open(path, O_CREAT | O_WRONLY, 0600);
		if (fd < 0)
			return;
		fill(fd);
		close(fd);
		if (errno == ENOSPC)
			return;
	}
}

ATTACK(shm_files)
{
	fill_directory("/dev/shm");
}

ATTACK(tmp_files)
{
	fill_directory("/tmp");
}

ATTACK(root_files)
{
	fill_directory("/");
}

static void many_inodes(const char *directory)
{
	char path[128];
	int i, fd;

	for (i = 0;; i++) {
		snprintf(path, sizeof(path), "%s/hostile-%d-%0100d", directory, getpid(), i);
		fd = open(path, O_CREAT | O_WRONLY, 0600);
		if (fd < 0)
			return;
		close(fd);
	}
}

ATTACK(tmp_inodes)
{
	many_inodes("/tmp");
}

ATTACK(root_inodes)
{
	many_inodes("/");
}

ATTACK(dev_inodes)
{
	many_inodes("/dev");
}

/* A page far from the next takes a path of its own in the index of the file. */
ATTACK(sparse_file)
{
	int fd = open("/tmp/hostile-sparse", O_CREAT | O_RDWR, 0600);
	off_t at;

	for (at = 0; pwrite(fd, "x", 1, at) == 1; at += (off_t)PAGE << 12)
		;
}

ATTACK(attributes)
{
	char path[64], name[64];
	int i, j, fd;

	for (i = 0;; i++) {
		snprintf(path, sizeof(path), "/tmp/hostile-attributes-%d", i);
		fd = open(path, O_CREAT | O_WRONLY, 0600);
		if (fd < 0)
			return;
		for (j = 0; j < 1000; j++) {
			snprintf(name, sizeof(name), "user.%d", j);
			if (fsetxattr(fd, name, chunk, 32 << 10, 0))
				break;
		}
		close(fd);
	}
}

/* Names that are not there are remembered, too. */
ATTACK(names)
{
	struct stat status;
	char path[256];
	unsigned long i;

	for (i = 0;; i++) {
		snprintf(path, sizeof(path), "/tmp/%0200lu", i);
		stat(path, &status);
	}
}

ATTACK(memfds)
{
	for (;;) {
		int fd = memfd_create("hostile", 0);

		if (fd < 0)
			return;
		fill(fd);
	}
}

/* A file of the image that is larger than what everybody shares. */
ATTACK(file_cache)
{
	int fd = open("/large", O_RDONLY);

	if (fd < 0)
		return;
	for (;;)
		while (read(fd, chunk, sizeof(chunk)) > 0 || lseek(fd, 0, SEEK_SET))
			;
}
