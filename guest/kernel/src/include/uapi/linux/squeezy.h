/* SPDX-License-Identifier: GPL-2.0 WITH Linux-syscall-note */
/*
 * Private memory partitions: the interface to user space.
 *
 * This file is the only source of these numbers; docs/abi.md explains them.
 */
#ifndef _UAPI_LINUX_SQUEEZY_H
#define _UAPI_LINUX_SQUEEZY_H

/* prctl(PR_SQUEEZY, operation, a, b, 0) */
#define PR_SQUEEZY			0x53515a59

/*
 * Assign the caller to partition @a, or to any one (PR_SQUEEZY_ANY), from its
 * next successful execve on. Waits up to @b milliseconds for it: 0 returns at
 * once, PR_SQUEEZY_FOREVER waits without end. Returns the partition's number.
 */
#define PR_SQUEEZY_ASSIGN		1
/* Drop an assignment that no execve has consumed yet. */
#define PR_SQUEEZY_CANCEL		2
/* Return the number of the partition that process @a (0: the caller) is in. */
#define PR_SQUEEZY_GET			3
/*
 * Assign the caller to the partition that process @a is in, beside who is there
 * already, from its next successful execve on. Returns the partition's number.
 */
#define PR_SQUEEZY_JOIN			4

#define PR_SQUEEZY_ANY			(-1)
#define PR_SQUEEZY_FOREVER		(-1)

/* The most partitions that one guest can have. */
#define SQUEEZY_MAX_PARTITIONS		255

#endif /* _UAPI_LINUX_SQUEEZY_H */
