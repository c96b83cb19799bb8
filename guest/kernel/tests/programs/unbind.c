// SPDX-License-Identifier: GPL-2.0
/* The memory device loses its driver while partitions are in use, and gets it back. */
#define _GNU_SOURCE
#include "actor.h"
#include "harness.h"
#include "host.h"
#include "instance.h"
#include "memory.h"
#include "squeezy.h"
#include "system.h"

#include <dirent.h>
#include <limits.h>

#define DRIVER "/sys/bus/virtio/drivers/virtio_mem"

/* The first one is the one with the partitions. */
static void find_device(char *name, size_t size)
{
	DIR *driver = opendir(DRIVER);
	unsigned int number, first = UINT_MAX;
	struct dirent *entry;

	ASSERT(driver, DRIVER ": %m");
	while ((entry = readdir(driver)))
		if (sscanf(entry->d_name, "virtio%u", &number) == 1 && number < first)
			first = number;
	closedir(driver);
	if (first == UINT_MAX)
		skip("no virtio-mem device");
	snprintf(name, size, "virtio%u", first);
}

TEST(an_instance_survives_the_driver)
{
	struct actor actor;
	char name[256];
	int free;

	require_partitions();
	require_host();
	find_device(name, sizeof(name));
	host_partitions(partitions() - 1, 20000);
	actor = start_instance(ANY, percent(50));
	if (!write_text(DRIVER "/unbind", name))
		note("unbind is refused: %m");
	sleep_ms(200);
	assert_intact(&actor);
	/* What is plugged can still be used. */
	free = partitions_in_state("free");
	actor_kill(&actor);
	ASSERT(settle(), "in use");
	ASSERT_EQ(partitions_in_state("free"), free + 1);
	if (!write_text(DRIVER "/bind", name))
		note("bind: %m");
	sleep_ms(500);
	actor = start_instance(ANY, percent(50));
	assert_intact(&actor);
	actor_kill(&actor);
	note("partitions free: %d of %d; the device has %llu MiB", partitions_in_state("free"),
	     partitions(), host_size() / MIB);
}
