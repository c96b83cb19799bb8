/* SPDX-License-Identifier: GPL-2.0 */
/* The system around partitions: files of proc and sysfs, a cgroup, the network, the kernel log. */
#ifndef SQUEEZY_TEST_SYSTEM_H
#define SQUEEZY_TEST_SYSTEM_H

#include "harness.h"

/* Small files: content without the newline; the value, which must be a number. */
bool read_text(const char *path, char *text, size_t size);
u64 read_number(const char *path);
bool write_text(const char *path, const char *text);
/* Lets the page cache and what else can be had again go. */
void drop_caches(void);
/* A line "NAME VALUE" of /proc/vmstat, /proc/meminfo (in kB), memory.events and the like. */
u64 read_field(const char *path, const char *field);
/* How many processes Linux has killed for want of memory, for whosever memory, since it booted. */
u64 oom_kills(void);

/* What Linux adds and onlines as one; slots are whole ones. */
u64 memory_block_bytes(void);
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

/* The kernel log from now on: kmsg_mark() returns a descriptor for kmsg_has() and kmsg_find(). */
int kmsg_mark(void);
bool kmsg_has(int mark, const char *a, const char *b);
/* The first record with these words, or NULL. */
const char *kmsg_find(int mark, const char *words);

#endif
