/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The host as a test sees it: it changes what the virtio-mem device is asked to have, and says
 * what it has. Requests are lines over the virtio-serial port org.squeezy.test.
 */
#ifndef SQUEEZY_TEST_HOST_H
#define SQUEEZY_TEST_HOST_H

#include "harness.h"

#include <stdbool.h>
#include <stdint.h>

/* Skips the test where no host listens. */
void require_host(void);
/* Sets the device's requested size, in bytes; does not wait for the guest. */
void host_request_size(u64 bytes);
/* The device's plugged size, in bytes. */
u64 host_size(void);
/* Waits until the plugged size is @bytes; false after @ms. */
bool host_wait_size(u64 bytes, unsigned int ms);
/* Both: fails when the guest does not get there within @ms. */
void host_resize(u64 bytes, unsigned int ms);
/* Bytes of the device's memory that are resident on the host. */
u64 host_resident(void);
/* The same of the memory that the guest always has. */
u64 host_base_resident(void);
/* Processor time of the VMM's threads that serve devices, in ns. */
u64 host_device_cpu_ns(void);
/* Has the device answer every request with BUSY, or no longer. */
void host_device_busy(bool busy);
/* Has the host take free memory every 20 ms from now on. */
void host_take(void);
/* Has it leave everything alone for a while, or go on. */
void host_rest(bool rests);
/*
 * Has a host work on LLFree's @zone that dies: it keeps so many areas of 2 MiB, and has so many in
 * hand. Before, it gives back what another one has left there.
 */
void host_die(const char *zone, unsigned int kept, unsigned int in_hand);
/*
 * Has the next host come: of what the one that died has left of the zone, it keeps so many areas,
 * and gives back the others. Then it has nothing in hand.
 */
void host_take_over(const char *zone, unsigned int kept);
/*
 * Has the next host come by itself, when somebody who has asked for what is kept of the zone waits
 * for what is in hand: see host_take_over(). If there is a @disturbed zone it keeps @left, which is
 * all that there is, and has something of that zone in hand, for 0.4 s first.
 */
void host_relieve(const char *zone, unsigned int left, unsigned int kept, const char *disturbed);
/* Waits until it has done so. */
void host_relieved(void);
/* How many of the areas that the dead one keeps have memory of the host's behind them. */
u64 host_kept_used(void);
/* Tells the host that the guest has started; how often it has until now. */
u64 host_boot(void);
/* Asks for shared + @count partitions and waits until the guest has them. */
void host_partitions(int count, unsigned int ms);
/* Where the drive with the serial number "image" is mounted. */
#define IMAGE	"/tmp/image/"
/* Mounts the drive; skips the test where there is none, or no file @name in it. */
void require_image_file(const char *name);
/* What the device has to be asked for so that the guest has @count partitions. */
u64 size_of_partitions(int count);

#endif
