// SPDX-License-Identifier: GPL-2.0
/*
 * With llfree=all, a host that has free memory in hand, and gives it back while somebody waits for
 * it: who does goes on with that, and nobody is killed, nor is cache reclaimed. The image has a
 * large file, "data".
 *
 * A wait ends after a second by itself. Where all that a test looks at may have taken nearly as
 * long, it says nothing about the host, and is done again.
 */
#define _GNU_SOURCE
#include "actor.h"
#include "calls.h"
#include "harness.h"
#include "host.h"
#include "llfree.h"
#include "memory.h"
#include "pages.h"
#include "system.h"
#include "trace.h"
#include "zone.h"

#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

/* How soon after a wait has begun all is over, if it has not ended by itself. */
#define IN_TIME_MS	500
#define TRIES		10
/* How long it may take until there is nothing left to take. */
#define FILL_MS		60000

/* What the host takes of a zone, in areas: all that are free, or of ordinary memory so many. */
#define ALL		UINT_MAX
#define TAKEN		80

/* In an actor: whether somebody has said something. */
static bool is_told(void)
{
	struct pollfd from = { .fd = ACTOR_FD, .events = POLLIN };

	return poll(&from, 1, 0);
}

ACTOR(takes_until_told)
{
	tell("ready");
	hear();
	while (!is_told())
		fill(map_anon(64 * KIB), 64 * KIB, 1);
	tell("went on");
}

/* Somebody who waits for the host. */
struct waiter {
	struct actor actor;
	u64 kills;	/* before */
	u64 since;	/* when it did not wait yet, in ms */
};

static u64 kills(void)
{
	return read_field("/proc/vmstat", "oom_kill");
}

/* The last time, in ms, at which there had been no more than @waits. */
static u64 await_wait(u64 waits)
{
	u64 before = 0, look = now_ms();

	ASSERT(WAIT_FOR((before = look, look = now_ms(), event_count("waits") > waits), FILL_MS),
	       "nobody waits for the host");
	return before;
}

/*
 * Has the host take areas of a zone in hand, and an actor use up the rest until it waits. It needs
 * no more than the page that it waits for. From then on there may be no memory: the caller does
 * what it has done before, which takes next to none, and Linux keeps some for its own that is not
 * for pages that can be moved.
 */
static struct waiter start_waiter(struct actor actor, const char *zone, unsigned int in_hand)
{
	struct waiter waiter = { .actor = actor, .kills = kills() };
	u64 waits;

	actor_hear(&waiter.actor);
	trace_events("llfree/llfree_wait", true);
	trace_events("llfree/llfree_interfered", true);
	host_die(zone, 0, in_hand == ALL ? free_areas(zone) : in_hand);
	waits = event_count("waits");
	actor_tell(&waiter.actor, "go on");
	waiter.since = await_wait(waits);
	actor_tell(&waiter.actor, "stop");
	return waiter;
}

/* Once the host has given back: false if it may have been too late. */
static bool has_gone_on(struct waiter *waiter, const char *wait)
{
	char said[16] = "";
	bool in_time;

	/* Nothing, if it has been killed. */
	recv(waiter->actor.fd, said, sizeof(said) - 1, 0);
	in_time = now_ms() - waiter->since < IN_TIME_MS;
	actor_kill(&waiter->actor);
	if (!in_time)
		return false;
	ASSERT(!strcmp(said, "went on"), "what was given back did not serve: '%s'", said);
	ASSERT_EQ(kills(), waiter->kills);
	ASSERT(trace_has(waiter->actor.pid, wait, "end=given_back"), "no %s", wait);
	return true;
}

/* Does this until the host has been in time. */
static void do_in_time(bool (*test)(void))
{
	unsigned int tries = 0;

	require_host();
	while (!test())
		ASSERT(++tries < TRIES, "the host has never been in time");
}

static bool instance_goes_on(void)
{
	struct actor instance = actor_start(0, "takes_until_told", NULL);
	struct waiter waiter = start_waiter(instance, "partition0", ALL);

	host_take_over("partition0", 0);
	return has_gone_on(&waiter, "llfree_wait: zone=partition0 ");
}

TEST(an_instance_goes_on_with_what_is_given_back, .seconds = 300)
{
	do_in_time(instance_goes_on);
}

/*
 * Areas that lift ordinary memory from where allocations stop half the way to the watermark that
 * who is about to kill looks for: nobody gets any of them but who has waited, and tries again.
 */
static unsigned int areas_that_spare_no_kill(void)
{
	unsigned int areas;
	struct zone zone;

	ASSERT(read_zone("DMA32", &zone), "there is no ZONE_DMA32");
	areas = (zone.high - zone.min) * PAGE / 2 / HUGE_PAGE;
	ASSERT_GE(areas, 1);
	return areas;
}

static bool ordinary_memory_goes_on(void)
{
	const unsigned int given = areas_that_spare_no_kill();
	struct actor hog = actor_start(NOBODY, "takes_until_told", NULL);
	struct waiter waiter = start_waiter(hog, "DMA32", TAKEN);
	bool in_time;

	host_take_over("DMA32", TAKEN - given);
	in_time = has_gone_on(&waiter, "llfree_wait: zone=DMA32 ");
	host_take_over("DMA32", 0);
	return in_time;
}

TEST(ordinary_memory_goes_on_with_what_is_given_back, .seconds = 300)
{
	do_in_time(ordinary_memory_goes_on);
}

static bool waits_again(void)
{
	const unsigned int given = areas_that_spare_no_kill();
	const u64 interferences = event_count("interferences");
	struct actor hog = actor_start(NOBODY, "takes_until_told", NULL);
	struct waiter waiter = start_waiter(hog, "DMA32", TAKEN);
	bool in_time;
	u64 again;

	/* Its turn in the wait is over: ordinary memory comes last. */
	host_die("shared", 0, 0);
	again = now_ms();
	/* This ends the wait, and brings nothing. */
	host_take_over("DMA32", TAKEN);
	ASSERT(WAIT_FOR(event_count("interferences") > interferences || !actor_alive(&hog),
			PROMPT_MS), "the wait does not end");
	if (event_count("interferences") > interferences)
		waiter.since = again;
	host_take_over("DMA32", TAKEN - given);
	host_take_over("shared", 0);
	in_time = has_gone_on(&waiter, "llfree_wait: zone=shared ");
	ASSERT(!in_time || trace_has(hog.pid, "llfree_interfered: zone=shared ", " -> "),
	       "no interference is traced");
	host_take_over("DMA32", 0);
	return in_time;
}

TEST(who_finds_the_host_at_work_again_waits_again, .seconds = 300)
{
	do_in_time(waits_again);
}

#define DATA	IMAGE "data"

/* Reads a page after the other, and nothing ahead: for that, nobody waits. */
ACTOR(reads_until_told)
{
	const int fd = OK(open(DATA, O_RDONLY));
	struct places seen;
	struct stat st;
	char *memory;
	long at;

	OK(fstat(fd, &st));
	memory = mmap(NULL, st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
	ASSERT(memory != MAP_FAILED, "mmap: %m");
	OK(madvise(memory, st.st_size, MADV_RANDOM));
	tell("ready");
	hear();
	for (at = 0; at < st.st_size && !is_told(); at += PAGE)
		*(volatile char *)(memory + at);
	count_places(memory, at, &seen);
	tell(seen.ordinary ? "fell back" : "went on");
}

static bool reader_goes_on(void)
{
	struct waiter waiter;
	struct actor reader;
	int reclaims;
	bool in_time;

	drop_caches();
	reader = actor_start(ANY, "reads_until_told", NULL);
	reclaims = count_calls(reader.pid, "try_to_free_pages");
	waiter = start_waiter(reader, "shared", ALL);
	host_take_over("shared", 0);
	in_time = has_gone_on(&waiter, "llfree_wait: zone=shared ");
	ASSERT(!in_time || !counted_calls(reclaims), "it has reclaimed memory");
	close(reclaims);
	return in_time;
}

TEST(no_cache_is_reclaimed_for_a_file_while_the_host_has_free_memory, .seconds = 300)
{
	require_image_file("data");
	do_in_time(reader_goes_on);
}
