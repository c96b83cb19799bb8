/* SPDX-License-Identifier: GPL-2.0 */
/* A cgroup with a freezer, as an instance has one, and the doom of what is frozen. */
#ifndef SQUEEZY_TEST_FROZEN_H
#define SQUEEZY_TEST_FROZEN_H

#include "actor.h"

/* An instance in a cgroup that is frozen. */
struct actor start_frozen_instance(void);
/* Kills what is in the cgroup, and waits until its partition is free and the cgroup gone. */
void end_contained(struct actor *actor);

/* Moves a process, whose children are to come, to the cgroup CGROUP of system.h, which it makes. */
void contain(pid_t pid);
/* Freezes what is in it, and waits until that is so. */
void freeze(void);
void thaw(void);

/* Writes @text to the doom of a partition: false and errno on failure. */
bool write_doom(int partition, const char *text);
bool is_doomed(int partition);
/* Dooms it, which must succeed. */
void doom(int partition);
void undoom(int partition);
/* It must not be possible to doom it, and the kernel log must say this. */
void assert_not_doomed(int partition, const char *reason);

#endif
