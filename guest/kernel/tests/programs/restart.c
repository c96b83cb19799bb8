// SPDX-License-Identifier: GPL-2.0
/* The guest starts anew while partitions are plugged and in use. The host counts the starts. */
#define _GNU_SOURCE
#include "actor.h"
#include "harness.h"
#include "host.h"
#include "instance.h"
#include "memory.h"
#include "squeezy.h"
#include "system.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/reboot.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Brings the machine to where its next boot finds partitions plugged and in use. */
static void use_partitions(void)
{
	struct actor actor;

	host_partitions(partitions(), 20000);
	actor = start_instance(ANY, percent(50));
	note("restarts with partition %d in use", actor.partition);
	sync();
}

/* The host still asks for as much as before. */
static void assert_partitions_are_as_new(void)
{
	const int n = partitions();
	struct actor actor;
	int i;

	ASSERT(host_wait_size(size_of_partitions(n), 20000), "%llu MiB", host_size() / MIB);
	ASSERT(WAIT_FOR(partitions_in_state("free") == n, 5000), "%d", partitions_in_state("free"));
	for (i = 0; i < n; i++) {
		ASSERT_EQ(partition_free(i), partition_managed(i));
		actor = start_instance(i, percent(50));
		actor_kill(&actor);
	}
}

/* The firmware runs again; the device has been reset and has nothing plugged. */
TEST(partitions_after_a_reboot, .seconds = 120)
{
	require_partitions();
	require_host();
	if (host_boot() == 1) {
		use_partitions();
		reboot(RB_AUTOBOOT);
		FAIL("reboot: %m");
	}
	assert_partitions_are_as_new();
}

/* Has a kernel ready to be started. */
static void load_kernel(void)
{
	char parameters[2048];
	int kernel, initramfs;

	require_image_file("bzImage");
	require_image_file("initramfs.cpio");
	ASSERT(read_text("/proc/cmdline", parameters, sizeof(parameters)), "%m");
	kernel = OK(open(IMAGE "bzImage", O_RDONLY));
	initramfs = OK(open(IMAGE "initramfs.cpio", O_RDONLY));
	OK(syscall(SYS_kexec_file_load, kernel, initramfs, strlen(parameters) + 1, parameters,
		   0ul));
}

/* A kernel starts another one; the device has everything plugged that it had before. */
TEST(partitions_after_kexec, .seconds = 120)
{
	require_partitions();
	require_host();
	if (host_boot() == 1) {
		load_kernel();
		use_partitions();
		reboot(RB_KEXEC);
		FAIL("reboot: %m");
	}
	assert_partitions_are_as_new();
}

/* With llfree=: the host would go on working on the next kernel's memory. */
TEST(kexec_is_refused)
{
	load_kernel();
	ASSERT_ERRNO(reboot(RB_KEXEC), EPERM);
}
