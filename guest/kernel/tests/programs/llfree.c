// SPDX-License-Identifier: GPL-2.0
/*
 * With llfree=partitions or llfree=all: where the host finds the state, what sysfs says of it,
 * and that reports have nothing to do.
 */
#include "harness.h"
#include "host.h"
#include "instance.h"
#include "llfree.h"
#include "memory.h"
#include "pages.h"
#include "reporting.h"
#include "squeezy.h"
#include "system.h"
#include "trace.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#define FILES "/sys/kernel/mm/llfree/"
#define STATE FILES "state"

static u64 number_of(int partition, const char *name)
{
	char zone[24];

	snprintf(zone, sizeof(zone), "partition%d", partition);
	return zone_number(zone, name);
}

TEST(the_state_is_announced)
{
	unsigned long long address, bytes, most;
	char text[64];

	ASSERT(read_text(STATE, text, sizeof(text)), "%s: %m", STATE);
	ASSERT(sscanf(text, "%llx %llu", &address, &bytes) == 2, "%s", text);
	ASSERT(address && !(address % PAGE) && !(bytes % PAGE), "%s", text);
	most = partitions() * partition_bytes();
	/* With llfree=all, that of boot memory, too, and of whole slots. */
	if (!access(FILES "zones/DMA32", F_OK))
		most += partitions() * memory_block_bytes() + 4096 * MIB;
	/* And a header of 11 KiB. */
	most = most / (1024 * MIB / (36 * 1024)) + 4 * PAGE;
	ASSERT(bytes <= most, "%llu bytes, at most %llu are right", bytes, most);
}

/*
 * What the host is just taking counts as held, neither as free nor as whole, and comes back without
 * anybody's help: whoever looks at that moment looks again.
 */
static u64 entirely_free(int partition)
{
	return number_of(partition, "whole_bytes") + number_of(partition, "evicted_bytes");
}

TEST(every_partition_is_a_zone)
{
	int i;

	for (i = 0; i < partitions(); i++) {
		ASSERT_EQ(number_of(i, "start_address"), partition_start(i));
		ASSERT(WAIT_FOR(number_of(i, "free_bytes") == partition_managed(i), PROMPT_MS),
		       "partition %d: %llu bytes free", i, number_of(i, "free_bytes"));
		ASSERT(WAIT_FOR(partition_free(i) == partition_managed(i), PROMPT_MS),
		       "partition %d: %llu bytes free elsewhere", i, partition_free(i));
		ASSERT(WAIT_FOR(entirely_free(i) == partition_managed(i), PROMPT_MS),
		       "partition %d: %llu bytes entirely free", i, entirely_free(i));
		ASSERT(WAIT_FOR(!number_of(i, "held_bytes"), PROMPT_MS),
		       "partition %d: %llu bytes held", i, number_of(i, "held_bytes"));
	}
}

TEST(what_an_instance_has_is_not_free)
{
	struct actor instance = start_instance(1, 16 * MIB);
	const u64 managed = partition_managed(1);
	u64 used;

	ASSERT(WAIT_FOR((used = managed - number_of(1, "free_bytes")) <= 32 * MIB, PROMPT_MS),
	       "%llu bytes used", used);
	ASSERT_GE(used, 16 * MIB);
	ASSERT(WAIT_FOR(entirely_free(1) >= managed - 48 * MIB, PROMPT_MS),
	       "%llu bytes entirely free", entirely_free(1));
	actor_kill(&instance);
	ASSERT(settle(), "a partition is not empty");
	ASSERT(WAIT_FOR(entirely_free(1) == managed, PROMPT_MS),
	       "%llu bytes entirely free", entirely_free(1));
}

TEST(free_pages_are_called_free)
{
	const u64 first = partition_start(0) / PAGE, pages = partition_managed(0) / PAGE;
	u64 pfn;

	for (pfn = first; pfn < first + pages; pfn += pages / 64)
		ASSERT(is_called_free(pfn), "%#llx is not", pfn);
}

#define PIECES		(32 * MIB)

/* Every other page of this. */
ACTOR(has_pieces)
{
	char *memory = map_anon(PIECES);
	u64 at;

	OK(madvise(memory, PIECES, MADV_NOHUGEPAGE));
	fill(memory, PIECES, 3);
	for (at = 0; at < PIECES; at += 2 * PAGE)
		OK(madvise(memory + at, PAGE, MADV_DONTNEED));
	tell("ready");
	hear();
}

/* Who reads all memory there is must not bring back what the host has taken. */
TEST(what_the_host_has_taken_is_not_read_back)
{
	int kcore = OK(open("/proc/kcore", O_RDONLY | O_CLOEXEC));
	u64 before;

	require_host();
	if (!WAIT_FOR(number_of(0, "evicted_bytes") == partition_managed(0), 10000))
		skip("no host takes what is free");
	before = host_resident();
	ASSERT_EQ(read_kcore(kcore, partition_start(0), partition_start(0) + partition_managed(0)),
		  partition_managed(0));
	ASSERT_LE(host_resident(), before + MIB);
	close(kcore);
}

/* Nor single pages, of which nothing says that they are gone. */
TEST(single_pages_that_the_host_has_taken_are_not_read_back, .seconds = 120)
{
	int kcore = OK(open("/proc/kcore", O_RDONLY | O_CLOEXEC));
	struct actor pieces;
	u64 before, taken;

	require_host();
	if (!WAIT_FOR(number_of(0, "evicted_bytes") == partition_managed(0), 10000))
		skip("no host takes what is free");
	before = host_resident();
	pieces = actor_start(0, "has_pieces", NULL);
	actor_hear(&pieces);
	/* Half of what it has used. */
	ASSERT(WAIT_FOR((taken = host_resident()) <= before + PIECES / 4 * 3, PROMPT_MS),
	       "%llu bytes are still there", taken - before);
	/* It would take what has been brought back. */
	host_rest(true);
	taken = host_resident();
	ASSERT_EQ(read_kcore(kcore, partition_start(0), partition_start(0) + partition_managed(0)),
		  partition_managed(0));
	ASSERT_LE(host_resident(), taken + MIB);
	host_rest(false);
	close(kcore);
	actor_kill(&pieces);
}

/* As much as there is, but something is in use in the first place. */
ACTOR(wants_huge_pages)
{
	const u64 bytes = partition_bytes();
	char *memory = map_huge(bytes);
	u64 at;

	for (at = 0; at < bytes; at += HUGE_PAGE)
		memory[at] = 1;
	tell("done");
	hear();
}

TEST(a_failed_allocation_is_traced)
{
	struct actor actor;

	trace_events("llfree/llfree_alloc_failed", true);
	actor = actor_start(2, "wants_huge_pages", NULL);
	actor_hear(&actor);
	actor_kill(&actor);
	trace_events("llfree/llfree_alloc_failed", false);
	ASSERT(trace_has(actor.pid, "llfree_alloc_failed: zone=partition2 ", "order=9 type=huge"),
	       "it is not traced");
}

TEST(partitions_do_not_have_to_be_reported)
{
	ASSERT_ERRNO(report(0, ""), EOPNOTSUPP);
}
