/* SPDX-License-Identifier: GPL-2.0 */
/* Files that live in memory. */
#ifndef SQUEEZY_TEST_MEMFILE_H
#define SQUEEZY_TEST_MEMFILE_H

#include "harness.h"

/* Gives the file this size and maps it, shared. */
char *map_file(int fd, u64 bytes);
/* The file /tmp/file on a tmpfs, mounted with @options, that ends with the caller. */
int file_of_my_own(const char *options);
/* Appends until @bytes are written or an error says why not; the bytes that are. */
u64 write_zeroes(int fd, u64 bytes);

#endif
