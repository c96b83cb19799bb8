/* SPDX-License-Identifier: GPL-2.0 */
/* Reports of a partition's free blocks to the host, and an instance that has some. */
#ifndef SQUEEZY_TEST_REPORTING_H
#define SQUEEZY_TEST_REPORTING_H

#include "actor.h"

#define BALLOON_DRIVER	"/sys/bus/virtio/drivers/virtio_balloon"
#define VIRTIO_DEVICES	"/sys/bus/virtio/devices/"

/* The balloon's name on the virtio bus; false where it has no free page reporting. */
bool find_balloon(char *name, size_t size);
/* Skips the test where there is no such balloon, or no host listens. */
void require_reporting(void);
/* Asks for a report; -1 and errno on failure. An order of "" is the kernel's default. */
int report(int partition, const char *order);
/* Bytes of the partition that have been reported. */
u64 reported(int partition);

/*
 * Starts an instance with so many percent of its partition of live memory and of garbage, in huge
 * pages if @huge is "1".
 */
struct actor start_with_garbage(const char *live, const char *garbage, const char *huge);
/*
 * Has it do something: "free" gives the garbage back to the kernel, "free some" every other 64 KiB
 * of it, "reuse" uses it again.
 */
void have(struct actor *actor, const char *what);
/* Asks it whether all is as it was left: "check", "check garbage", or "zero" for freed garbage. */
void assert_kept(struct actor *actor, const char *what);

#endif
