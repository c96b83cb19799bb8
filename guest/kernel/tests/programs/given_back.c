// SPDX-License-Identifier: GPL-2.0
/*
 * With llfree=all, a host that has free memory in hand, and gives it back while somebody waits for
 * it: who does goes on with that, and nobody is killed, nor is cache reclaimed. The image has a
 * large file, "data".
 *
 * A wait ends after a second by itself. Where the host came too late, or before there was a wait,
 * nothing is said about what is tested here, and it is done again.
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
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#define TRIES		10
/* How long it may take until there is nothing left to take. */
#define FILL_MS		60000
/* What the host takes of ordinary memory, in areas: in hand, and to keep so that it is asked. */
#define TAKEN		80
#define KEPT		1

ACTOR(takes_until_somebody_waits)
{
	u64 waits;

	tell("ready");
	hear();
	waits = event_count("waits");
	while (event_count("waits") == waits)
		fill(map_anon(64 * KIB), 64 * KIB, 1);
	tell("went on");
}

/* Ends an actor that has said something or is dead: what it said, nothing if it has been killed. */
static const char *last_word(struct actor *actor)
{
	static char said[16];

	memset(said, 0, sizeof(said));
	recv(actor->fd, said, sizeof(said) - 1, 0);
	actor_kill(actor);
	return said;
}

/*
 * Of an actor that has ended: false if it has not waited as told, or for longer than one does,
 * which is the host's fault. The host has nothing by then: where this fails, the next test has the
 * same one.
 */
static bool has_gone_on(pid_t actor, const char *said, const char *wait, u64 kills_before)
{
	if (!trace_has(actor, wait, "end=") || trace_has(actor, "llfree_wait: ", "end=timed_out"))
		return false;
	ASSERT(!strcmp(said, "went on"), "what was given back did not serve: '%s'", said);
	ASSERT_EQ(oom_kills(), kills_before);
	ASSERT(trace_has(actor, wait, "end=given_back"), "no %s", wait);
	return true;
}

/* Does this until the host has been in time. */
static void do_in_time(bool (*test)(void))
{
	unsigned int tries = 1;

	require_host();
	trace_events("llfree/llfree_wait", true);
	trace_events("llfree/llfree_interfered", true);
	while (!test())
		ASSERT(++tries <= TRIES, "the host has never been in time");
	note("the host was in time at try %u", tries);
}

/* Has the host take all of a zone in hand, and give it back as soon as the actor waits for it. */
static bool goes_on_with_all_of(const char *zone, struct actor *actor, const char *wait)
{
	const u64 killed = oom_kills();
	bool waited;
	u64 waits;

	actor_hear(actor);
	host_die(zone, 0, free_areas(zone));
	waits = event_count("waits");
	actor_tell(actor, "go on");
	waited = WAIT_FOR(event_count("waits") > waits, FILL_MS);
	host_take_over(zone, 0);
	ASSERT(waited, "nobody waits for the host");
	return has_gone_on(actor->pid, last_word(actor), wait, killed);
}

static bool instance_goes_on(void)
{
	struct actor instance = actor_start(0, "takes_until_somebody_waits", NULL);

	return goes_on_with_all_of("partition0", &instance, "llfree_wait: zone=partition0 ");
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

/*
 * The host gives back so much while an actor waits, and is at work on another zone meanwhile, if
 * there is a @disturbed one. It does so by itself: nothing can be done here without memory.
 */
static bool ordinary_memory_goes_on(const char *disturbed, const char *wait)
{
	const unsigned int given = areas_that_spare_no_kill();
	struct actor hog = actor_start(NOBODY, "takes_until_somebody_waits", NULL);
	const u64 killed = oom_kills();
	const char *said;

	actor_hear(&hog);
	host_die("DMA32", KEPT, TAKEN);
	host_relieve("DMA32", KEPT + TAKEN, KEPT + TAKEN - given, disturbed);
	actor_tell(&hog, "go on");
	said = last_word(&hog);
	host_relieved();
	host_take_over("DMA32", 0);
	/*
	 * Who came when the first wait was over already, or found a page after it and waited for
	 * the next one, has not been disturbed.
	 */
	return trace_has(hog.pid, "llfree_wait: zone=DMA32 ", "end=given_back") &&
	       (!disturbed || trace_has(hog.pid, "llfree_interfered: ", " -> ")) &&
	       has_gone_on(hog.pid, said, wait, killed);
}

static bool waits_once(void)
{
	return ordinary_memory_goes_on(NULL, "llfree_wait: zone=DMA32 ");
}

TEST(ordinary_memory_goes_on_with_what_is_given_back, .seconds = 300)
{
	do_in_time(waits_once);
}

/* The wait for ordinary memory, which is the last one, brings nothing. */
static bool waits_again(void)
{
	const u64 interferences = event_count("interferences");
	const bool in_time = ordinary_memory_goes_on("shared", "llfree_wait: zone=shared ");

	ASSERT(!in_time || event_count("interferences") > interferences, "none is counted");
	return in_time;
}

TEST(who_finds_the_host_at_work_again_waits_again, .seconds = 300)
{
	do_in_time(waits_again);
}

#define DATA	IMAGE "data"

/* Reads a page after the other, and nothing ahead: for that, nobody waits. */
ACTOR(reads_until_somebody_waits)
{
	const int fd = OK(open(DATA, O_RDONLY));
	struct places seen;
	struct stat st;
	char *memory;
	u64 waits;
	long at;

	OK(fstat(fd, &st));
	memory = mmap(NULL, st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
	ASSERT(memory != MAP_FAILED, "mmap: %m");
	OK(madvise(memory, st.st_size, MADV_RANDOM));
	tell("ready");
	hear();
	waits = event_count("waits");
	for (at = 0; at < st.st_size && event_count("waits") == waits; at += PAGE)
		*(volatile char *)(memory + at);
	count_places(memory, at, &seen);
	tell(seen.ordinary ? "fell back" : "went on");
}

static bool reader_goes_on(void)
{
	struct actor reader;
	int reclaims;
	bool in_time;

	drop_caches();
	reader = actor_start(ANY, "reads_until_somebody_waits", NULL);
	reclaims = count_calls(reader.pid, "try_to_free_pages");
	in_time = goes_on_with_all_of("shared", &reader, "llfree_wait: zone=shared ");
	ASSERT(!in_time || !counted_calls(reclaims), "it has reclaimed memory");
	close(reclaims);
	return in_time;
}

TEST(no_cache_is_reclaimed_for_a_file_while_the_host_has_free_memory, .seconds = 300)
{
	require_image_file("data");
	do_in_time(reader_goes_on);
}
