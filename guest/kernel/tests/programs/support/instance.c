// SPDX-License-Identifier: GPL-2.0
/* See instance.h. */
#define _GNU_SOURCE
#include "instance.h"
#include "memory.h"

#include <stdlib.h>
#include <string.h>

#define SEED 5

ACTOR(instance)
{
	u64 bytes = strtoull(argv[0], NULL, 10);
	char *memory = bytes ? map_anon(bytes) : NULL;

	fill(memory, bytes, SEED);
	tell("filled");
	while (!strcmp(hear(), "check"))
		tell(filled(memory, bytes, SEED) ? "intact" : "broken");
}

struct actor start_instance(int partition, u64 bytes)
{
	struct actor actor;
	char text[32];

	snprintf(text, sizeof(text), "%llu", bytes);
	actor = actor_start(partition, "instance", text, NULL);
	actor_hear(&actor);
	return actor;
}

void assert_intact(struct actor *instance)
{
	ASSERT(actor_alive(instance), "the instance in partition %d was killed",
	       instance->partition);
	actor_tell(instance, "check");
	ASSERT(!strcmp(actor_hear(instance), "intact"), "memory in partition %d changed",
	       instance->partition);
}
