// SPDX-License-Identifier: GPL-2.0
/*
 * With llfree=all, a host that dies while it has free memory in hand and keeps some: the guest goes
 * on with the rest, waits for what is in hand once, and loses nothing when the next host comes.
 */
#define _GNU_SOURCE
#include "actor.h"
#include "calls.h"
#include "harness.h"
#include "host.h"
#include "instance.h"
#include "llfree.h"
#include "memory.h"
#include "pages.h"
#include "squeezy.h"
#include "system.h"
#include "trace.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <unistd.h>

/* How long who needs memory waits for what is in hand, and for what is kept, and is killed. */
#define WAITED_MS	(1000 + 250 + 5 * PROMPT_MS)
/* What the host takes of ordinary memory, in areas: of each kind. */
#define TAKEN		80

/* Needs single pages that there are, a huge page that there is not, and then more than there is. */
ACTOR(takes_what_there_is)
{
	const u64 bytes = strtoull(argv[0], NULL, 10) * MIB;
	char *pieces = map_anon(bytes), *huge = map_huge(HUGE_PAGE);
	u64 at;

	OK(madvise(pieces, bytes, MADV_NOHUGEPAGE));
	fill(pieces, bytes, 1);
	tell("ready");
	hear();
	/* No area is free as a whole after this. */
	for (at = 0; at < bytes; at += 2 * PAGE)
		OK(madvise(pieces + at, PAGE, MADV_DONTNEED));
	huge[0] = 1;
	tell("went on");
	hear();
	for (;;)
		fill(map_anon(MIB), MIB, 1);
}

static struct actor start_in(int partition, const char *mebibytes)
{
	struct actor actor = actor_start(partition, "takes_what_there_is", mebibytes, NULL);

	actor_hear(&actor);
	return actor;
}

/* Has it take more than there is; returns after how many milliseconds it was killed for that. */
static u64 is_killed(struct actor *actor)
{
	const u64 before = oom_kills(), start = now_ms();

	actor_tell(actor, "take all");
	actor_join_killed(actor);
	ASSERT_EQ(oom_kills(), before + 1);
	return now_ms() - start;
}

/* With trace_event=llfree:llfree_zone. Those of boot memory are there before tracing is. */
TEST(zones_are_traced_as_they_are_set_up)
{
	ASSERT(trace_has(0, "llfree_zone:", "zone=partition0 "), "it is not traced");
}

TEST(an_instance_waits_once_for_what_was_in_hand, .seconds = 120)
{
	struct actor neighbour = start_instance(1, percent(60)), instance = start_in(0, "16");
	const u64 waits = event_count("waits"), timeouts = event_count("wait_timeouts");
	u64 took;

	trace_events("llfree/llfree_wait", true);
	host_die("partition0", 0, free_areas("partition0"));
	/* A huge page is not worth a wait. */
	actor_tell(&instance, "go on");
	actor_hear(&instance);
	ASSERT_EQ(event_count("waits"), waits);

	took = is_killed(&instance);
	note("killed after %llu ms", took);
	ASSERT_LE(took, WAITED_MS * slowness());
	ASSERT_EQ(event_count("wait_timeouts"), timeouts + 1);
	ASSERT(trace_has(instance.pid, "llfree_wait: zone=partition0 ", "end=timed_out"),
	       "it is not traced");
	ASSERT(WAIT_FOR(partition_is(0, "free"), PROMPT_MS), "%s", partition_state(0));

	/* The partition is the next one's, who does not wait for the same host. */
	instance = start_in(0, "4");
	actor_tell(&instance, "go on");
	actor_hear(&instance);
	note("killed after %llu ms", is_killed(&instance));
	ASSERT_EQ(event_count("wait_timeouts"), timeouts + 1);
	assert_intact(&neighbour);
	actor_kill(&neighbour);
}

/* It may be killed just after it has waited: then another host dies for another instance. */
TEST(who_waits_for_the_host_can_be_killed, .seconds = 120)
{
	const u64 killed = event_count("wait_kills");
	unsigned int tries;

	for (tries = 0; tries < 10 && event_count("wait_kills") == killed; tries++) {
		struct actor instance = start_in(0, "16");
		const u64 waits = event_count("waits");

		host_die("partition0", 0, free_areas("partition0"));
		actor_tell(&instance, "go on");
		actor_hear(&instance);
		actor_tell(&instance, "take all");
		/* It takes what is left in pieces first. */
		ASSERT(WAIT_FOR(event_count("waits") > waits, 20000), "nobody waits");
		actor_kill(&instance);
		ASSERT(WAIT_FOR(partition_is(0, "free"), PROMPT_MS), "%s", partition_state(0));
	}
	ASSERT_GE(event_count("wait_kills"), killed + 1);
}

TEST(a_partition_comes_and_goes_with_what_was_in_hand, .seconds = 120)
{
	struct actor instance;

	require_host();
	host_die("partition0", 0, free_areas("partition0") / 2);
	host_partitions(0, 20000);
	host_partitions(partitions(), 20000);
	instance = start_instance(0, percent(30));
	assert_intact(&instance);
	actor_kill(&instance);
}

TEST(ordinary_memory_goes_on_without_what_the_host_has, .seconds = 300)
{
	struct actor bystander = start_instance(NOBODY, 16 * MIB), hog;
	const u64 taken = 2 * TAKEN * HUGE_PAGE, timeouts = event_count("wait_timeouts");
	const u64 before = ordinary_free();
	u64 timed_out;

	host_die("DMA32", TAKEN, TAKEN);
	ASSERT_EQ(zone_number("DMA32", "held_bytes"), taken);
	hog = start_in(NOBODY, "1");
	actor_tell(&hog, "go on");
	actor_hear(&hog);
	/* What is kept is accounted for by who allocates, as a new process does. */
	ASSERT_LE(ordinary_free(), before - taken / 2);
	note("killed after %llu ms", is_killed(&hog));
	/* Of those who wait at the same time, each does. */
	ASSERT_GE(event_count("wait_timeouts"), timeouts + 1);
	timed_out = event_count("wait_timeouts");
	hog = start_in(NOBODY, "1");
	actor_tell(&hog, "go on");
	actor_hear(&hog);
	note("killed after %llu ms", is_killed(&hog));
	ASSERT_EQ(event_count("wait_timeouts"), timed_out);

	assert_intact(&bystander);
	actor_kill(&bystander);
	ASSERT_EQ(host_kept_used(), 0);
}

/* None of its allocations has __GFP_FS: for want of them nobody is killed. */
ACTOR(takes_all_as_an_io_flusher)
{
	OK(prctl(PR_SET_IO_FLUSHER, 1, 0, 0, 0));
	tell("ready");
	hear();
	for (;;)
		fill(map_anon(MIB), MIB, 1);
}

/* It may have a lock that all others wait for, and tries for ever. */
TEST(who_may_not_kill_asks_and_does_not_wait, .seconds = 300)
{
	struct actor hog = actor_start(NOBODY, "takes_all_as_an_io_flusher", NULL);
	int asks, waits[2];

	host_die("DMA32", TAKEN, TAKEN);
	actor_hear(&hog);
	asks = count_calls(hog.pid, "llfree_ask_hosts");
	waits[0] = count_calls(hog.pid, "llfree_wait_for_held");
	waits[1] = count_calls(hog.pid, "llfree_wait_for_hosts");
	actor_tell(&hog, "take all");
	ASSERT(WAIT_FOR(counted_calls(asks), 60000), "it does not ask");
	/* A wait would come next: it does not die in between. */
	actor_kill(&hog);
	ASSERT_EQ(counted_calls(waits[0]), 0);
	ASSERT_EQ(counted_calls(waits[1]), 0);
}

/* Whoever reads all memory there is must not bring back what the host keeps. */
TEST(what_the_host_keeps_is_not_read_back, .seconds = 300)
{
	const u64 start = zone_number("DMA32", "start_address");
	int kcore = OK(open("/proc/kcore", O_RDONLY | O_CLOEXEC));

	host_die("DMA32", TAKEN, TAKEN);
	ASSERT_GE(read_kcore(kcore, start, start + 4096 * MIB), 2 * TAKEN * HUGE_PAGE);
	close(kcore);
	ASSERT_EQ(host_kept_used(), 0);
}

TEST(the_next_host_gives_back_what_was_in_hand, .seconds = 120)
{
	struct actor instance, bystander = start_instance(1, percent(60));
	u64 timeouts;

	host_die("partition0", 0, free_areas("partition0"));
	host_die("DMA32", TAKEN, 0);
	timeouts = event_count("wait_timeouts");
	host_take();
	ASSERT(WAIT_FOR(zone_number("partition0", "free_bytes") == partition_managed(0),
			PROMPT_MS), "%llu bytes free", zone_number("partition0", "free_bytes"));
	instance = start_instance(0, percent(90));
	assert_intact(&instance);
	assert_intact(&bystander);
	actor_kill(&instance);
	actor_kill(&bystander);
	ASSERT(settle(), "a partition is not empty");
	/*
	 * What was kept is kept until somebody says how much it is to be. What the host is just
	 * taking counts, too, and goes back.
	 */
	ASSERT(WAIT_FOR(zone_number("DMA32", "held_bytes") == TAKEN * HUGE_PAGE, PROMPT_MS),
	       "%llu bytes held", zone_number("DMA32", "held_bytes"));
	ASSERT_EQ(host_kept_used(), 0);
	ASSERT_EQ(event_count("wait_timeouts"), timeouts);
}
