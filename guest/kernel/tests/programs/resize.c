// SPDX-License-Identifier: GPL-2.0
/*
 * Growing and shrinking, as any way to resize a VM must do it. These tests know nothing of
 * partitions beyond the helpers at the top, and run on stock virtio-mem as well: that they pass
 * there shows that they ask for the right thing.
 */
#include "actor.h"
#include "harness.h"
#include "host.h"
#include "memory.h"
#include "squeezy.h"
#include "system.h"

#include <stdlib.h>
#include <string.h>

/* Without partitions the unit is this, and there are as many as the device was made for. */
#define STOCK_UNIT	(128 * MIB)
#define STOCK_UNITS	4
#define RESIZE_MS	30000

static u64 unit_bytes(void)
{
	return have_partitions() ? partition_bytes() : STOCK_UNIT;
}

static int units(void)
{
	return have_partitions() ? partitions() : STOCK_UNITS;
}

static u64 size_of_units(int count)
{
	return have_partitions() ? size_of_partitions(count) : count * STOCK_UNIT;
}

static int where(void)
{
	return have_partitions() ? ANY : NOBODY;
}

static void resize(int count)
{
	if (have_partitions())
		host_partitions(count, RESIZE_MS);
	else
		host_resize(size_of_units(count), RESIZE_MS);
}

/* What an instance can hold of a unit without a kill. */
static u64 instance_bytes(void)
{
	return unit_bytes() * 3 / 4;
}

/* Holds memory with a pattern in it until it is told to check it and go. */
ACTOR(hog)
{
	u64 bytes = strtoull(argv[0], NULL, 0), seed = strtoull(argv[1], NULL, 0);
	char *memory = map_anon(bytes);

	ASSERT(all_zero(memory, bytes), "fresh memory is not zero");
	fill(memory, bytes, seed);
	tell("filled");
	while (!strcmp(hear(), "check"))
		tell(filled(memory, bytes, seed) ? "intact" : "broken");
}

static struct actor start_hog(int seed)
{
	char bytes[32], text[32];
	struct actor actor;

	snprintf(bytes, sizeof(bytes), "%llu", instance_bytes());
	snprintf(text, sizeof(text), "%d", seed * 1000003);
	actor = actor_start(where(), "hog", bytes, text, NULL);
	actor_hear(&actor);
	return actor;
}

static void check_hog(struct actor *actor)
{
	actor_tell(actor, "check");
	ASSERT(!strcmp(actor_hear(actor), "intact"), "memory of a running instance changed");
}

static u64 guest_total(void)
{
	return read_field("/proc/meminfo", "MemTotal") * KIB;
}

TEST(grows_and_shrinks_to_every_size)
{
	int i;

	require_host();
	resize(0);
	for (i = 1; i <= units(); i++)
		resize(i);
	for (i = units() - 1; i >= 0; i--)
		resize(i);
	resize(units());
}

TEST(total_memory_follows_the_size)
{
	u64 before, most, least;

	require_host();
	resize(1);
	sleep_ms(200);
	before = guest_total();
	resize(units());
	most = before + (units() - 1) * unit_bytes();
	/* The memory map and the like may cost a little, and the device knows before the guest. */
	least = before + (units() - 1) * unit_bytes() * 15 / 16;
	ASSERT(WAIT_FOR(guest_total() >= least, 10000), "%llu MiB more, not %llu",
	       (guest_total() - before) / MIB, (least - before) / MIB);
	ASSERT_LE(guest_total(), most);
	resize(1);
	ASSERT(WAIT_FOR(guest_total() <= before + MIB, 10000), "%llu MiB more",
	       (guest_total() - before) / MIB);
	ASSERT_GE(guest_total(), before - MIB);
}

TEST(memory_of_others_stays_intact)
{
	struct actor keep, go;
	int round;

	require_host();
	resize(2);
	keep = start_hog(1);
	for (round = 0; round < 3; round++) {
		go = start_hog(2 + round);
		actor_kill(&go);
		resize(1);
		check_hog(&keep);
		resize(2);
		check_hog(&keep);
	}
	actor_tell(&keep, "go");
	actor_join(&keep);
}

TEST(memory_goes_back_to_the_host)
{
	u64 used, left;
	struct actor hog;

	require_host();
	resize(1);
	hog = start_hog(7);
	used = host_resident();
	ASSERT_GE(used, instance_bytes() * 3 / 4);
	actor_kill(&hog);
	ASSERT(settle(), "the instance is still there");
	resize(0);
	left = host_resident();
	/* Stock virtio-mem may have had some of it elsewhere. */
	ASSERT(left + instance_bytes() * 3 / 4 <= used, "resident: %llu MiB before, %llu MiB after",
	       used / MIB, left / MIB);
	resize(units());
}

TEST(memory_is_zero_when_it_comes_back)
{
	struct actor hog;
	int round;

	require_host();
	for (round = 0; round < 3; round++) {
		resize(1);
		hog = start_hog(round + 1);	/* checks that what it gets is zero */
		actor_kill(&hog);
		ASSERT(settle(), "the instance is still there");
		if (round == 1)
			resize(0);
	}
	resize(units());
}

TEST(a_full_guest_gives_back_what_one_instance_had)
{
	struct actor hogs[16];
	int count, i;

	require_host();
	count = units() < 4 ? units() : 4;
	resize(count);
	for (i = 0; i < count; i++)
		hogs[i] = start_hog(i + 1);
	for (i = count - 1; i > 0; i--) {
		actor_kill(&hogs[i]);
		resize(i);
		check_hog(&hogs[0]);
	}
	actor_kill(&hogs[0]);
	resize(0);
	resize(units());
}
