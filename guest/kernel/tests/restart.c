// SPDX-License-Identifier: GPL-2.0
/* The guest starts anew while partitions are plugged and in use. The host counts the starts. */
#define _GNU_SOURCE
#include "harness.h"
#include "host.h"
#include "squeezy.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/reboot.h>
#include <unistd.h>

ACTOR(instance)
{
	u64 bytes = partition_bytes() / 2;

	fill(map_anon(bytes), bytes, 1);
	tell("filled");
	hear();
}

TEST(partitions_after_a_reboot, .seconds = 120)
{
	struct actor actor;
	int i, n;

	require_partitions();
	require_host();
	n = partitions();
	if (host_boot() == 1) {
		host_partitions(n, 20000);
		actor = actor_start(ANY, "instance", NULL);
		actor_hear(&actor);
		note("restarts with partition %d in use", actor.partition);
		sync();
		reboot(RB_AUTOBOOT);
		FAIL("reboot: %m");
	}
	/* The host still asks for as much as before. */
	ASSERT(host_wait_size(size_of_partitions(n), 20000), "%llu MiB", host_size() / MIB);
	ASSERT(WAIT_FOR(partitions_in_state("free") == n, 5000), "%d", partitions_in_state("free"));
	for (i = 0; i < n; i++) {
		ASSERT_EQ(partition_free(i), partition_managed(i));
		actor = actor_start(i, "instance", NULL);
		actor_hear(&actor);
		actor_kill(&actor);
	}
}
