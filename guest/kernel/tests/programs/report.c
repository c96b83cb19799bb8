// SPDX-License-Identifier: GPL-2.0
/*
 * What an instance that lives on has freed goes back to the host on request, and nothing else
 * does. Boot this with a balloon that has free page reporting.
 */
#define _GNU_SOURCE
#include "harness.h"
#include "host.h"
#include "squeezy.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define DRIVER		"/sys/bus/virtio/drivers/virtio_balloon"
#define DEVICES		"/sys/bus/virtio/devices/"
#define F_REPORTING	5
#define LIVE		5
#define GARBAGE		6

/* Asks for a report; -1 and errno on failure. An order of "" is the kernel's default. */
static int report(int partition, const char *order)
{
	char path[96], line[32];

	snprintf(path, sizeof(path), "/sys/kernel/mm/squeezy/partition%d/report", partition);
	snprintf(line, sizeof(line), "%s\n", order);
	return write_text(path, line) ? 0 : -1;
}

static u64 reported(int partition)
{
	char path[96];

	snprintf(path, sizeof(path), "/sys/kernel/mm/squeezy/partition%d/reported_bytes",
		 partition);
	return read_number(path);
}

/* The balloon's name on the virtio bus; false where it has no free page reporting. */
static bool find_balloon(char *name, size_t size)
{
	DIR *driver = opendir(DRIVER);
	char path[400], features[80];
	struct dirent *entry;
	bool found = false;

	while (driver && !found && (entry = readdir(driver))) {
		snprintf(path, sizeof(path), DEVICES "%s/features", entry->d_name);
		found = !strncmp(entry->d_name, "virtio", 6) &&
			read_text(path, features, sizeof(features)) &&
			features[F_REPORTING] == '1';
		if (found)
			snprintf(name, size, "%s", entry->d_name);
	}
	if (driver)
		closedir(driver);
	return found;
}

static void require_reporting(void)
{
	char name[256];

	require_partitions();
	require_host();
	if (!find_balloon(name, sizeof(name)))
		skip("the VM has no balloon with free page reporting");
}

/*
 * Has live memory and garbage. "free" gives the garbage back to the kernel, "free some" every
 * other 64 KiB of it, "reuse" uses it again; "check" is whether all is as it was left.
 */
ACTOR(instance)
{
	u64 live = percent(atoi(argv[0])), garbage = percent(atoi(argv[1])), at, seed = GARBAGE;
	bool huge = atoi(argv[2]);
	char *memory = huge ? map_huge(live + garbage) : map_anon(live + garbage);
	char *freed = memory + live;
	const char *what;

	fill(memory, live, LIVE);
	fill(freed, garbage, seed);
	tell("ready");
	for (;;) {
		what = hear();
		if (!strcmp(what, "free")) {
			OK(madvise(freed, garbage, MADV_DONTNEED));
		} else if (!strcmp(what, "free some")) {
			for (at = 0; at < garbage; at += 128 * KIB)
				OK(madvise(freed + at, 64 * KIB, MADV_DONTNEED));
		} else if (!strcmp(what, "zero")) {
			tell(all_zero(freed, garbage) ? "intact" : "broken");
			continue;
		} else if (!strcmp(what, "reuse")) {
			fill(freed, garbage, ++seed);
			assert_confined(getpid(), (live + garbage) / PAGE);
		} else if (!strcmp(what, "check")) {
			tell(filled(memory, live, LIVE) ? "intact" : "broken");
			continue;
		} else if (!strcmp(what, "check garbage")) {
			tell(filled(freed, garbage, seed) ? "intact" : "broken");
			continue;
		}
		tell("done");
	}
}

static struct actor start_instance(const char *live, const char *garbage, const char *huge)
{
	struct actor actor = actor_start(ANY, "instance", live, garbage, huge, NULL);

	actor_hear(&actor);
	return actor;
}

static void have(struct actor *actor, const char *what)
{
	actor_tell(actor, "%s", what);
	ASSERT(!strcmp(actor_hear(actor), "done"), "%s", what);
}

static void assert_intact(struct actor *actor, const char *what)
{
	actor_tell(actor, "%s", what);
	ASSERT(!strcmp(actor_hear(actor), "intact"), "%s of partition %d: memory changed", what,
	       actor->partition);
}

static void free_blocks_go_back(const char *huge)
{
	struct actor actor, neighbour;
	u64 before, after, told, garbage, of_neighbour;

	require_reporting();
	garbage = percent(60);
	neighbour = start_instance("30", "30", huge);
	actor = start_instance("20", "60", huge);
	have(&actor, "free");
	have(&neighbour, "free");
	before = host_resident();
	told = reported(actor.partition);
	of_neighbour = reported(neighbour.partition);
	OK(report(actor.partition, ""));
	after = host_resident();
	told = reported(actor.partition) - told;
	note("%llu MiB freed, %llu MiB reported, resident %llu MiB less", garbage / MIB,
	     told / MIB, (before - after) / MIB);
	ASSERT_GE(told, garbage / 10 * 9);
	ASSERT_LE(told, partition_managed(actor.partition) - percent(20));
	ASSERT_LE(after, before - garbage / 10 * 9);
	/* The neighbour's garbage is its own business. */
	ASSERT_GE(after, before - told - 2 * MIB);
	ASSERT_EQ(reported(neighbour.partition), of_neighbour);
	ASSERT(partition_is(actor.partition, "assigned"), "%s", partition_state(actor.partition));
	ASSERT_EQ(partition_users(actor.partition), 1);

	assert_intact(&actor, "check");
	assert_intact(&neighbour, "check");
	assert_intact(&actor, "zero");
	have(&actor, "reuse");
	assert_intact(&actor, "check garbage");
	assert_intact(&actor, "check");
	assert_intact(&neighbour, "check");
	actor_kill(&actor);
	actor_kill(&neighbour);
}

TEST(free_pages_go_back)
{
	free_blocks_go_back("0");
}

TEST(free_huge_pages_go_back)
{
	free_blocks_go_back("1");
}

TEST(what_is_known_to_be_free_is_not_reported_again)
{
	struct actor actor;
	u64 told;

	require_reporting();
	actor = start_instance("20", "60", "0");
	have(&actor, "free");
	OK(report(actor.partition, ""));
	told = reported(actor.partition);
	OK(report(actor.partition, ""));
	/* A block that was broken up meanwhile counts anew. */
	ASSERT_LE(reported(actor.partition) - told, 8 * MIB);
	have(&actor, "reuse");
	have(&actor, "free");
	told = reported(actor.partition);
	OK(report(actor.partition, ""));
	ASSERT_GE(reported(actor.partition) - told, percent(60) / 10 * 9);
	actor_kill(&actor);
}

TEST(small_blocks_go_back_down_to_the_order_that_is_asked_for)
{
	static const char * const orders[] = { "", "3", "0" };
	u64 half, told, before, sums[3];
	struct actor actor;
	int i;

	require_reporting();
	half = percent(60) / 2;
	actor = start_instance("20", "60", "0");
	OK(report(actor.partition, "0"));
	have(&actor, "free some");
	before = host_resident();
	told = reported(actor.partition);
	for (i = 0; i < 3; i++) {
		OK(report(actor.partition, orders[i]));
		sums[i] = reported(actor.partition) - told;
		note("order %s: %llu of %llu MiB reported, resident %llu MiB less", orders[i],
		     sums[i] / MIB, half / MIB, (before - host_resident()) / MIB);
	}
	ASSERT_LE(sums[0], half / 4);
	ASSERT_LE(sums[0], sums[1]);
	ASSERT_LE(sums[1], sums[2]);
	ASSERT_GE(sums[2], half / 10 * 9);
	ASSERT_LE(sums[2], half + 8 * MIB);
	ASSERT_LE(host_resident(), before - half / 10 * 9);
	assert_intact(&actor, "check");
	actor_kill(&actor);
}

/* One report, with what it took; how much less is resident. */
static u64 measure(struct actor *actor, const char *order, u64 freed)
{
	static const char * const names[] = {
		"reported_bytes", "reported_blocks", "report_requests", "report_guest_ns",
		"report_device_ns",
	};
	u64 before[5], resident = host_resident(), cpu = host_device_cpu_ns(), less;
	int i;

	for (i = 0; i < 5; i++)
		before[i] = counter(names[i]);
	OK(report(actor->partition, order));
	cpu = host_device_cpu_ns() - cpu;
	less = resident - host_resident();
	for (i = 0; i < 5; i++)
		before[i] = counter(names[i]) - before[i];
	note("%llu MiB freed, order %s: %llu KiB in %llu blocks, %llu requests",
	     freed / MIB, *order ? order : "9", before[0] / KIB, before[1], before[2]);
	note("%llu us guest, %llu us device, %llu us host; resident %llu KiB less",
	     before[3] / 1000, before[4] / 1000, cpu / 1000, less / KIB);
	return less;
}

/* Numbers, for a VM with partitions of 768 MiB: what is freed in one piece, and scattered. */
TEST(what_a_report_takes, .seconds = 300)
{
	static const char * const sizes[] = { "9", "68" };
	struct actor actor;
	unsigned int i, round;
	u64 freed;

	require_reporting();
	for (i = 0; i < 2; i++) {
		freed = percent(atoi(sizes[i]));
		actor = start_instance("10", sizes[i], "0");
		OK(report(actor.partition, "0"));
		for (round = 0; round < 5; round++) {
			have(&actor, "free");
			ASSERT_GE(measure(&actor, "", freed), freed / 10 * 9);
			have(&actor, "reuse");
		}
		have(&actor, "free some");
		measure(&actor, "", freed / 2);
		measure(&actor, "3", freed / 2);
		measure(&actor, "0", freed / 2);
		assert_intact(&actor, "check");
		actor_kill(&actor);
	}
}

static void writes_without_the_capability(void *data)
{
	int fd = *(int *)data;

	OK(setresuid(65534, 65534, 65534));
	ASSERT_ERRNO(write(fd, "\n", 1), EPERM);
}

TEST(errors)
{
	static const char * const nonsense[] = { "11", "-1", "0x", "nine", "9 9", "4294967296" };
	struct actor actor;
	char name[256];
	unsigned int i;
	int fd;

	require_partitions();
	require_host();
	host_partitions(partitions() - 1, 20000);
	ASSERT_ERRNO(report(0, ""), ENODATA);
	ASSERT_ERRNO(report(partitions() - 1, ""), ENODATA);
	actor = start_instance("5", "5", "0");
	for (i = 0; i < sizeof(nonsense) / sizeof(*nonsense); i++)
		ASSERT_ERRNO(report(actor.partition, nonsense[i]), EINVAL);
	fd = OK(open("/sys/kernel/mm/squeezy/partition0/report", O_WRONLY));
	in_child_ok(writes_without_the_capability, &fd);
	ASSERT_ERRNO(open("/sys/kernel/mm/squeezy/partition0/report", O_RDONLY), EACCES);
	if (!find_balloon(name, sizeof(name)))
		ASSERT_ERRNO(report(actor.partition, ""), EOPNOTSUPP);
	else
		OK(report(actor.partition, ""));
	assert_intact(&actor, "check");
	actor_kill(&actor);
	host_partitions(partitions(), 20000);
}

/* Fills nearly all of its partition again and again, while it is being reported. */
ACTOR(breathes)
{
	u64 end = now_ms() + strtoull(argv[0], NULL, 10) * slowness(), bytes = percent(90);
	u64 rounds = 0;

	while (now_ms() < end) {
		char *memory = rounds % 2 ? map_huge(bytes) : map_anon(bytes);

		fill(memory, bytes, rounds);
		ASSERT(filled(memory, bytes, rounds), "memory changed");
		OK(munmap(memory, bytes));
		rounds++;
	}
	note("%llu rounds", rounds);
}

/* Reports partitions at random until it is killed; nothing but the listed errors may come. */
ACTOR(reporter)
{
	unsigned int seed = atoi(argv[0]);
	u64 done = 0;

	for (;;) {
		char order[8];

		snprintf(order, sizeof(order), "%d", rand_r(&seed) % 11);
		if (!report(rand_r(&seed) % partitions(), order))
			done++;
		else
			ASSERT(errno == ENODATA || errno == EBUSY, "report: %m");
		if (done == 1)
			tell("first");
	}
}

TEST(an_allocation_waits_for_the_blocks_that_are_being_reported, .seconds = 120)
{
	struct actor reporters[2], actor;
	u64 kills;
	int i;

	require_reporting();
	kills = counter("oom_kills");
	actor = actor_start(ANY, "breathes", "6000", NULL);
	for (i = 0; i < 2; i++) {
		reporters[i] = actor_start(NOBODY, "reporter", i ? "1" : "2", NULL);
		actor_hear(&reporters[i]);
	}
	actor_join(&actor);
	for (i = 0; i < 2; i++)
		actor_kill(&reporters[i]);
	ASSERT_EQ(counter("oom_kills"), kills);
	note("%llu reports, %llu MiB", counter("reports"), counter("reported_bytes") / MIB);
}

/* Starts, fills and leaves partitions, while they are being reported and resized. */
ACTOR(comes_and_goes)
{
	u64 end = now_ms() + strtoull(argv[0], NULL, 10) * slowness();
	int status, rounds = 0;
	pid_t pid;

	for (; now_ms() < end; rounds++) {
		pid = OK(fork());
		if (!pid) {
			char *arguments[] = { "300", NULL };

			if (squeezy_assign(ANY, 500) < 0)
				_exit(0);
			exec_body("stays_a_moment", arguments);
		}
		if (rounds % 3 == 0) {
			sleep_ms(rounds % 50);
			kill(pid, SIGKILL);
		}
		OK(waitpid(pid, &status, 0));
		ASSERT(WIFSIGNALED(status) ? WTERMSIG(status) == SIGKILL : !WEXITSTATUS(status),
		       "%#x", status);
	}
	note("%d processes", rounds);
}

PLAIN(stays_a_moment)
{
	u64 bytes = percent(50);
	char *memory = map_anon(bytes);

	if (!all_zero(memory, bytes / 8))
		_exit(1);
	fill(memory, bytes, getpid());
	if (madvise(memory + bytes / 2, bytes / 2, MADV_DONTNEED))
		_exit(1);
	sleep_ms(20);
	fill(memory + bytes / 2, bytes / 4, 1);
	_exit(!filled(memory, bytes / 2, getpid()) || !filled(memory + bytes / 2, bytes / 4, 1));
}

TEST(reports_race_with_exits_and_resizes, .seconds = 180)
{
	struct actor reporters[2], workers[3];
	unsigned int seed = 1;
	u64 end, kills;
	int i, n;

	require_reporting();
	n = partitions();
	kills = counter("oom_kills");
	host_partitions(n, 20000);
	for (i = 0; i < 3; i++)
		workers[i] = actor_start(NOBODY, "comes_and_goes", "8000", NULL);
	for (i = 0; i < 2; i++)
		reporters[i] = actor_start(NOBODY, "reporter", i ? "3" : "4", NULL);
	end = now_ms() + 7000 * slowness();
	while (now_ms() < end) {
		host_request_size(size_of_partitions(rand_r(&seed) % (n + 1)));
		sleep_ms(rand_r(&seed) % 60);
	}
	for (i = 0; i < 3; i++)
		actor_join(&workers[i]);
	for (i = 0; i < 2; i++)
		actor_kill(&reporters[i]);
	ASSERT(settle(), "in use");
	ASSERT_EQ(counter("oom_kills"), kills);
	host_partitions(0, 30000);
	ASSERT(!shrink_blocked()[0], "%s", shrink_blocked());
	host_partitions(n, 30000);
	for (i = 0; i < n; i++)
		ASSERT_EQ(partition_free(i), partition_managed(i));
	note("%llu reports, %llu requests, %llu MiB", counter("reports"),
	     counter("report_requests"), counter("reported_bytes") / MIB);
}

static u64 host_all_resident(void)
{
	return host_base_resident() + host_resident();
}

/* Fills ordinary or shared memory, lets go of it, and waits; how much less the host has. */
static u64 freed_by_itself(unsigned int ms)
{
	u64 bytes = 64 * MIB, before, after;
	char *memory = map_anon(bytes);

	fill(memory, bytes, 1);
	before = host_all_resident();
	OK(munmap(memory, bytes));
	WAIT_FOR((after = host_all_resident()) + bytes / 2 < before, ms);
	return before > after ? before - after : 0;
}

TEST(linux_reports_nothing_by_itself)
{
	require_reporting();
	ASSERT_LE(freed_by_itself(5000), 8 * MIB);
}

/* With squeezy.background_reporting=1: as stock, except for partitions. */
TEST(linux_reports_all_but_partitions_by_itself)
{
	struct actor actor;
	u64 freed, told;

	require_reporting();
	actor = start_instance("20", "60", "0");
	have(&actor, "free");
	told = reported(actor.partition);
	freed = freed_by_itself(30000);
	note("%llu MiB went back", freed / MIB);
	ASSERT_GE(freed, 32 * MIB);
	/* What it had reported would be left out here. */
	OK(report(actor.partition, ""));
	ASSERT_GE(reported(actor.partition) - told, percent(60) / 10 * 9);
	actor_kill(&actor);
}

TEST(the_device_may_go_and_come)
{
	struct actor actor, reporter;
	char name[256];
	u64 told;
	int i;

	require_reporting();
	ASSERT(find_balloon(name, sizeof(name)), "no balloon");
	actor = start_instance("20", "60", "0");
	have(&actor, "free");
	for (i = 0; i < 5; i++) {
		reporter = actor_start(NOBODY, "reporter_of_one", NULL);
		actor_tell(&reporter, "%d", actor.partition);
		actor_hear(&reporter);
		ASSERT(write_text(DRIVER "/unbind", name), "unbind: %m");
		ASSERT(!strcmp(actor_hear(&reporter), "EOPNOTSUPP"), "another error");
		ASSERT_ERRNO(report(actor.partition, ""), EOPNOTSUPP);
		ASSERT(write_text(DRIVER "/bind", name), "bind: %m");
		actor_kill(&reporter);
		have(&actor, "reuse");
		assert_intact(&actor, "check garbage");
		have(&actor, "free");
	}
	told = reported(actor.partition);
	OK(report(actor.partition, ""));
	ASSERT_GE(reported(actor.partition) - told, percent(60) / 10 * 9);
	assert_intact(&actor, "check");
	actor_kill(&actor);
}

/* Reports one partition until that fails. */
ACTOR(reporter_of_one)
{
	int partition = atoi(hear());
	bool first = true;

	while (!report(partition, "0")) {
		if (first)
			tell("first");
		first = false;
	}
	tell("%s", errno == EOPNOTSUPP ? "EOPNOTSUPP" : strerror(errno));
	hear();
}

/* Where the balloon's PCI function is in sysfs. */
static int open_balloon_config(void)
{
	char name[256], path[400];

	ASSERT(find_balloon(name, sizeof(name)), "no balloon");
	snprintf(path, sizeof(path), DEVICES "%s/../config", name);
	return OK(open(path, O_RDWR | O_CLOEXEC));
}

#define PCI_COMMAND		4
#define PCI_COMMAND_MASTER	4

/* Without bus mastering the device cannot read its queues, and does not answer. */
static void silence_balloon(void)
{
	int fd = open_balloon_config();
	unsigned short command;

	ASSERT_EQ(pread(fd, &command, 2, PCI_COMMAND), 2);
	command &= ~PCI_COMMAND_MASTER;
	ASSERT_EQ(pwrite(fd, &command, 2, PCI_COMMAND), 2);
	close(fd);
}

ACTOR(reports_once)
{
	report(atoi(hear()), "");
	tell("back");
}

/* The last test of a VM: what it leaves waits for the host for ever. */
TEST(a_host_that_does_not_answer_holds_up_one_partition, .seconds = 120, .leaves_partitions = true)
{
	struct actor actor, other, waiting;
	u64 free;

	require_reporting();
	actor = start_instance("20", "60", "0");
	other = start_instance("20", "60", "0");
	have(&actor, "free");
	free = partition_free(actor.partition);
	silence_balloon();
	waiting = actor_start(NOBODY, "reports_once", NULL);
	actor_tell(&waiting, "%d", actor.partition);
	/* A batch of it is on its way. */
	ASSERT(WAIT_FOR(partition_free(actor.partition) + percent(40) < free, 5000),
	       "not reported");
	ASSERT_EQ(partition_users(actor.partition), 2);
	/* Whoever waits can be killed, and nobody waits for ever. */
	actor_kill(&waiting);
	ASSERT_ERRNO(report(actor.partition, ""), EBUSY);
	ASSERT_ERRNO(report(other.partition, ""), ETIMEDOUT);
	assert_intact(&actor, "check");
	assert_intact(&other, "check garbage");
	/* It needs what the host has, and waits; it is not killed for it, but can be. */
	actor_tell(&actor, "reuse");
	sleep_ms(1000);
	ASSERT(actor_alive(&actor), "killed");
	actor_kill(&actor);
	actor_kill(&other);
	ASSERT(partition_is(actor.partition, "assigned"), "%s", partition_state(actor.partition));
}
