// SPDX-License-Identifier: GPL-2.0
/*
 * The memory that the kernel has booted with: all of it can be had and comes back, also when it is
 * short or in pieces. With llfree=all this is LLFree's; it must not matter who has it.
 */
#define _GNU_SOURCE
#include "actor.h"
#include "harness.h"
#include "instance.h"
#include "llfree.h"
#include "memory.h"
#include "pages.h"
#include "pieces.h"
#include "system.h"
#include "zone.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/param.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

/* What nobody gets, and what programs and page tables take beside what they ask for. */
#define MARGIN		(48 * MIB)

static u64 meminfo(const char *field)
{
	return read_field("/proc/meminfo", field) * KIB;
}

static u64 vmstat(const char *field)
{
	return read_field("/proc/vmstat", field);
}

/* As much as there is without killing anybody. */
static u64 nearly_all(void)
{
	const u64 available = meminfo("MemAvailable");

	ASSERT_GE(available, 2 * MARGIN);
	return (available - MARGIN) / HUGE_PAGE * HUGE_PAGE;
}

static void set_oom_score_adj(const char *adj)
{
	ASSERT(write_text("/proc/self/oom_score_adj", adj), "%m");
}

static void fills(u64 bytes)
{
	char *memory = map_anon(bytes);

	fill(memory, bytes, 7);
	ASSERT(filled(memory, bytes, 7), "memory has changed");
}

static void fills_nearly_all(void *data __attribute__((unused)))
{
	fills(nearly_all());
}

TEST(all_of_it_can_be_had_and_comes_back, .seconds = 300)
{
	const u64 before = meminfo("MemFree"), killed = oom_kills();
	int i;

	for (i = 0; i < 3; i++)
		in_child_ok(fills_nearly_all, NULL);
	/* Page tables and the like are freed by others, and lists of processors keep some. */
	ASSERT(WAIT_FOR(meminfo("MemFree") + 24 * MIB >= before, PROMPT_MS),
	       "%llu bytes are free, %llu were", meminfo("MemFree"), before);
	ASSERT_EQ(oom_kills(), killed);
}

/* Pages allocated, or freed, from the zones that LLFree may have. */
static u64 counted(const char *what)
{
	char dma32[32], normal[32];

	snprintf(dma32, sizeof(dma32), "%s_dma32", what);
	snprintf(normal, sizeof(normal), "%s_normal", what);
	return vmstat(dma32) + vmstat(normal);
}

TEST(pages_are_counted_as_they_come_and_go)
{
	const u64 bytes = 64 * MIB, pages = bytes / PAGE;
	u64 allocated = counted("pgalloc"), freed = vmstat("pgfree");
	char *memory = map_anon(bytes);

	OK(madvise(memory, bytes, MADV_NOHUGEPAGE));
	fill(memory, bytes, 1);
	/* Each processor adds up once in a while; others need some, too. */
	ASSERT(WAIT_FOR(counted("pgalloc") >= allocated + pages, PROMPT_MS), "%llu allocated",
	       counted("pgalloc") - allocated);
	ASSERT_LE(counted("pgalloc"), allocated + pages + pages / 2);
	OK(munmap(memory, bytes));
	ASSERT(WAIT_FOR(vmstat("pgfree") >= freed + pages, PROMPT_MS), "%llu freed",
	       vmstat("pgfree") - freed);
	ASSERT_LE(vmstat("pgfree"), freed + pages + pages / 2);
}

TEST(free_blocks_add_up_to_what_is_free)
{
	u64 blocks, free;

	/* Pages on lists of processors are free and in no block, and others come and go. */
	ASSERT(WAIT_FOR((blocks = free_blocks_bytes(0), free = meminfo("MemFree"),
			 blocks <= free + MIB && free <= blocks + 8 * MIB), PROMPT_MS),
	       "%llu bytes in blocks, %llu free", blocks, free);
}

#define ZONES		"/sys/kernel/mm/llfree/zones/"

TEST(llfree_counts_as_the_rest_of_the_kernel_does)
{
	const char *files = ZONES "DMA32/free_bytes";
	const char *more = ZONES "Normal/free_bytes";
	u64 bytes, free;

	if (on_free_lists())
		skip("the free lists have the memory");
	/* ZONE_DMA is not LLFree's: boot_zone.c. */
	ASSERT(WAIT_FOR((bytes = read_number(files) + (access(more, F_OK) ? 0 : read_number(more)),
			 free = meminfo("MemFree"),
			 bytes <= free + 2 * MIB && free <= bytes + 18 * MIB), PROMPT_MS),
	       "%llu bytes, %llu free", bytes, free);
}

static void fills_huge_pages(void *data __attribute__((unused)))
{
	const u64 bytes = nearly_all() / 2 / HUGE_PAGE * HUGE_PAGE;
	const u64 before = meminfo("AnonHugePages");
	char *memory = map_huge(bytes);

	fill(memory, bytes, 3);
	ASSERT_GE(meminfo("AnonHugePages"), before + bytes / 10 * 9);
	ASSERT(filled(memory, bytes, 3), "memory has changed");
}

TEST(half_of_it_is_to_be_had_in_huge_pages, .seconds = 120)
{
	in_child_ok(fills_huge_pages, NULL);
}

ACTOR(takes_all)
{
	set_oom_score_adj("0");
	tell("ready");
	hear();
	for (;;)
		fill(map_anon(MIB), MIB, 1);
}

TEST(who_takes_too_much_is_killed_and_nobody_else, .seconds = 300)
{
	struct actor bystander = start_instance(NOBODY, 16 * MIB);
	struct actor hog = actor_start(NOBODY, "takes_all", NULL);
	const u64 before = oom_kills();

	actor_hear(&hog);
	actor_tell(&hog, "go");
	actor_join_killed(&hog);
	sleep_ms(500);
	ASSERT_EQ(oom_kills(), before + 1);
	assert_intact(&bystander);
	actor_kill(&bystander);
}

/* The drive with a file to read, which Suite::data() gives the guest. */
static bool mount_data(void)
{
	mkdir("/mnt", 0755);
	return !mount("/dev/vda", "/mnt", "erofs", MS_RDONLY, NULL) || !access("/mnt/data", R_OK);
}

static u64 read_file(const char *path)
{
	static char block[MIB];
	int fd = OK(open(path, O_RDONLY | O_CLOEXEC));
	u64 sum = 0;
	ssize_t got, i;

	while ((got = OK(read(fd, block, sizeof(block)))))
		for (i = 0; i < got; i += 64)
			sum = sum * 31 + (unsigned char)block[i];
	close(fd);
	return sum;
}

ACTOR(keeps_reading)
{
	const u64 sum = read_file("/mnt/data");

	tell("ready");
	for (;;)
		ASSERT_EQ(read_file("/mnt/data"), sum);
}

TEST(page_cache_makes_room_for_memory, .seconds = 300)
{
	const u64 before = oom_kills();
	struct actor reader;

	if (!mount_data())
		skip("there is no file to read: %m");
	reader = actor_start(NOBODY, "keeps_reading", NULL);
	actor_hear(&reader);
	in_child_ok(fills_nearly_all, NULL);
	ASSERT(actor_alive(&reader), "who reads a file was killed");
	actor_kill(&reader);
	ASSERT_EQ(oom_kills(), before);
}

#define FORKS	500

TEST(memory_in_pieces_is_enough_for_a_storm_of_forks, .seconds = 300)
{
	struct actor pieces = in_pieces();
	const u64 before = oom_kills(), isolated = moved();
	pid_t children[FORKS];
	int i;

	for (i = 0; i < FORKS; i++) {
		children[i] = fork_child();
		if (!children[i]) {
			pause();
			_exit(0);
		}
	}
	for (i = 0; i < FORKS; i++) {
		OK(kill(children[i], SIGKILL));
		OK(waitpid(children[i], NULL, 0));
	}
	ASSERT_EQ(oom_kills(), before);
	note("%llu pages moved", moved() - isolated);
	ASSERT(actor_alive(&pieces), "who has half of the memory was killed");
	actor_kill(&pieces);
}

/*
 * Makes pipes with so many slots that their arrays are blocks of this order, and take @bytes; how
 * many can be made.
 */
static u64 try_pipes(unsigned int order, u64 bytes)
{
	/* A slot is 40 bytes; there is a power of two of them. */
	const int size = PAGE * 64 << order;
	u64 i, made = 0;
	int ends[2];

	for (i = 0; i < bytes / (PAGE << order); i++) {
		OK(pipe2(ends, O_CLOEXEC));
		made += fcntl(ends[1], F_SETPIPE_SZ, size) >= size;
	}
	return made;
}

static void make_pipes(unsigned int order, u64 bytes)
{
	const u64 count = bytes / (PAGE << order), made = try_pipes(order, bytes);

	ASSERT(made == count, "order %u, pipe %llu of %llu: %m", order, made, count);
}

TEST(memory_in_pieces_is_joined_for_small_orders, .seconds = 300)
{
	struct rlimit files = { 80000, 80000 };
	struct actor pieces;
	u64 before, isolated;
	unsigned int order;

	if (on_free_lists())
		skip("the free lists have the memory, and there Linux kills now and then");
	pieces = in_pieces();
	before = oom_kills();
	isolated = moved();
	OK(setrlimit(RLIMIT_NOFILE, &files));
	/*
	 * What the test before has left to be freed late is whole, however little was left
	 * available. The largest blocks take it with the fewest files. A host may leave far more.
	 */
	for (order = 3; order >= 1; order--)
		make_pipes(order, MIN(free_blocks_bytes(order), 128 * MIB) + LEFT_WHOLE);
	ASSERT_EQ(oom_kills(), before);
	note("%llu pages moved", moved() - isolated);
	/* Beside a host, what it gives back may be enough. */
	if (!event_count("evicted_allocations"))
		ASSERT_GE(moved(), isolated + 1);
	ASSERT(actor_alive(&pieces), "who has half of the memory was killed");
	actor_kill(&pieces);
}

/* Each page that is freed could be the one that a block lacked: nobody may count on it. */
TEST(memory_in_pieces_is_joined_while_pages_come_and_go, .seconds = 300)
{
	struct rlimit files = { 80000, 80000 };
	struct actor pieces;
	u64 before, isolated;

	if (on_free_lists())
		skip("the free lists have the memory, and there Linux kills now and then");
	pieces = in_pieces_that_change();
	before = oom_kills();
	isolated = moved();
	OK(setrlimit(RLIMIT_NOFILE, &files));
	make_pipes(3, MIN(free_blocks_bytes(3), 128 * MIB) + 3 * LEFT_WHOLE);
	ASSERT_EQ(oom_kills(), before);
	note("%llu pages moved", moved() - isolated);
	ASSERT(actor_alive(&pieces), "who has half of the memory was killed");
	actor_kill(&pieces);
}

/* Linux tries once for each of these and does not wait for memory: some may fail. */
static void makes_large_blocks(void *data)
{
	const unsigned int order = *(unsigned int *)data;
	struct actor pieces = in_pieces();
	/* ZONE_DMA keeps what it has from this. */
	const u64 whole = MIN(free_blocks_beside(order, "DMA"), 128 * MIB);
	const u64 made = try_pipes(order, whole + 3 * LEFT_WHOLE) * (PAGE << order);

	note("order %u: %llu bytes, %llu were whole", order, made, whole);
	ASSERT_GE(made, whole + LEFT_WHOLE);
	actor_kill(&pieces);
}

TEST(memory_in_pieces_is_joined_for_large_blocks, .seconds = 300)
{
	struct rlimit files = { 80000, 80000 };
	unsigned int order;

	if (on_free_lists())
		skip("the free lists have the memory, and there fewer can be had");
	OK(setrlimit(RLIMIT_NOFILE, &files));
	for (order = 4; order <= 8; order++)
		in_child_ok(makes_large_blocks, &order);
}

TEST(memory_in_pieces_is_joined_on_request, .seconds = 300)
{
	const u64 moved = vmstat("compact_migrate_scanned");
	struct actor pieces = in_pieces();
	u64 before, huge = 16 * HUGE_PAGE;
	char *memory;

	ASSERT(write_text("/proc/sys/vm/compact_memory", "1"), "%m");
	ASSERT_GE(vmstat("compact_migrate_scanned"), moved + 1);
	before = meminfo("AnonHugePages");
	memory = map_huge(huge);
	fill(memory, huge, 9);
	ASSERT_EQ(meminfo("AnonHugePages"), before + huge);
	actor_kill(&pieces);
}

TEST(memory_in_pieces_is_joined_for_huge_pages, .seconds = 300)
{
	struct actor pieces = in_pieces();
	const u64 before = meminfo("AnonHugePages"), bytes = 16 * HUGE_PAGE;
	/* Linux's own lists have been seen to join only one beyond what was left whole. */
	const u64 enough = LEFT_WHOLE + (on_free_lists() ? 1 : 2) * HUGE_PAGE;
	char *memory = map_huge(bytes);
	u64 huge = 0, at;
	int tries;

	/* After a compaction that got nothing, up to 64 faults do without one. */
	for (tries = 0; tries < 16 && huge < enough; tries++) {
		OK(madvise(memory, bytes, MADV_DONTNEED));
		for (at = 0; at < bytes; at += HUGE_PAGE)
			memory[at] = 9;
		huge = meminfo("AnonHugePages") - before;
	}
	note("%llu bytes in huge pages at try %d", huge, tries);
	ASSERT_GE(huge, enough);
	actor_kill(&pieces);
}

/* Whether the memory there is one huge page. */
static bool is_huge(const char *memory)
{
	const u64 last = pagemap_entry(getpid(), memory + HUGE_PAGE - PAGE);
	const u64 first = pagemap_entry(getpid(), memory);

	return first & last & PAGEMAP_PRESENT && !(first % (HUGE_PAGE / PAGE)) &&
	       (last & PAGEMAP_PFN) == (first & PAGEMAP_PFN) + HUGE_PAGE / PAGE - 1;
}

/*
 * Asks for huge pages until compaction has gone to its end again and again; how many there are. A
 * host that has the free pages in hand keeps compaction from them for as long.
 */
static int take_huge_pages(char *memory, int count)
{
	int in_vain = 0, huge = 0, before, i;

	while (in_vain < 10 && huge < count) {
		before = huge;
		huge = 0;
		for (i = 0; i < count; i++) {
			char *at = memory + i * HUGE_PAGE;

			if (!is_huge(at)) {
				OK(madvise(at, HUGE_PAGE, MADV_DONTNEED));
				*at = 9;
			}
			huge += is_huge(at);
		}
		if (huge > before) {
			in_vain = 0;
		} else {
			in_vain++;
			sleep_ms(50);
		}
	}
	return huge;
}

#define ROUNDS	4
#define DEFRAG	"/sys/kernel/mm/transparent_hugepage/defrag"

/* The middle of the zone that most of the memory is in, as a page. */
static u64 middle(void)
{
	return meminfo("MemTotal") / 2 / PAGE;
}

/*
 * What compaction passes by is forgotten when it has been everywhere, without kswapd, which nobody
 * wakes here: each time it finds what can be emptied, in all of the memory.
 */
TEST(memory_in_pieces_is_joined_everywhere_each_time, .seconds = 600)
{
	u64 fails;
	int round, count, huge, high, i;
	struct actor pieces;
	char *memory;

	if (on_free_lists())
		skip("the free lists have the memory, and there half of it is never emptied");
	if (meminfo("MemTotal") > 1024 * MIB)
		skip("there is too much memory to do this in");
	/* Faults compact by themselves. */
	ASSERT(write_text(DEFRAG, "madvise"), "%m");
	for (round = 0; round < ROUNDS; round++) {
		pieces = in_pieces();
		fails = vmstat("compact_fail");
		count = meminfo("MemAvailable") / HUGE_PAGE;
		memory = map_huge(count * HUGE_PAGE);
		huge = take_huge_pages(memory, count);
		high = 0;
		for (i = 0; i < count; i++)
			high += is_huge(memory + i * HUGE_PAGE) &&
				pfn_of(memory + i * HUGE_PAGE) > middle();
		note("round %d: %d huge pages of %d, %d of them high, %llu compactions in vain",
		     round, huge, count, high, vmstat("compact_fail") - fails);
		OK(munmap(memory, count * HUGE_PAGE));
		actor_kill(&pieces);
		ASSERT_GE(huge, count / 2);
		ASSERT_GE(high, huge / 4);
	}
	ASSERT(write_text(DEFRAG, "never"), "%m");
}

/* Sends to itself as fast as it can, and so allocates where nobody can wait. */
ACTOR(floods)
{
	struct sockaddr_in address = { .sin_family = AF_INET };
	socklen_t length = sizeof(address);
	static char block[64 * KIB];
	int listener, sender, receiver;
	u64 sum = 0;

	address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	listener = OK(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
	OK(bind(listener, (struct sockaddr *)&address, length));
	OK(listen(listener, 1));
	OK(getsockname(listener, (struct sockaddr *)&address, &length));
	sender = OK(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
	OK(connect(sender, (struct sockaddr *)&address, length));
	receiver = OK(accept(listener, NULL, NULL));
	OK(fcntl(sender, F_SETFL, O_NONBLOCK));
	OK(fcntl(receiver, F_SETFL, O_NONBLOCK));
	tell("ready");
	for (;;) {
		ssize_t sent = send(sender, block, sizeof(block), 0);
		ssize_t got = recv(receiver, block, sizeof(block), 0);

		sum += sent > 0 ? sent : 0;
		sum -= got > 0 ? got : 0;
		ASSERT_LE(sum, 64 * MIB);
	}
}

#define RECEIVED	"/sys/class/net/lo/statistics/rx_bytes"

/* Packets go on while there is little more than watermarks and the reserve for who cannot wait. */
static void fills_all_but_the_reserve(void *data __attribute__((unused)))
{
	const u64 available = meminfo("MemAvailable");
	u64 received;

	ASSERT_GE(available, 2 * MARGIN);
	fills((available - MARGIN / 3) / HUGE_PAGE * HUGE_PAGE);
	received = read_number(RECEIVED);
	ASSERT(WAIT_FOR(read_number(RECEIVED) >= received + 4 * MIB, PROMPT_MS),
	       "%llu bytes are received", read_number(RECEIVED) - received);
}

TEST(a_flood_of_packets_while_memory_is_short, .seconds = 300)
{
	const u64 before = oom_kills();
	struct actor flood;

	bring_loopback_up();
	flood = actor_start(NOBODY, "floods", NULL);
	actor_hear(&flood);
	in_child_ok(fills_all_but_the_reserve, NULL);
	in_child_ok(fills_all_but_the_reserve, NULL);
	ASSERT(actor_alive(&flood), "who sends packets was killed");
	actor_kill(&flood);
	ASSERT_EQ(oom_kills(), before);
}
