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
#include <string.h>

#define DRIVER "/sys/bus/virtio/drivers/virtio_mem"

static void find_device(char *name, size_t size)
{
	DIR *driver = opendir(DRIVER);
	struct dirent *entry;

	ASSERT(driver, DRIVER ": %m");
	while ((entry = readdir(driver))) {
		if (strncmp(entry->d_name, "virtio", 6))
			continue;
		snprintf(name, size, "%s", entry->d_name);
		closedir(driver);
		return;
	}
	skip("no virtio-mem device");
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
