// SPDX-License-Identifier: GPL-2.0
/* Reports of free blocks when the device goes, or does not answer. See report.c. */
#define _GNU_SOURCE
#include "actor.h"
#include "harness.h"
#include "reporting.h"
#include "squeezy.h"
#include "system.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

TEST(the_device_may_go_and_come)
{
	struct actor actor, reporter;
	char name[256];
	u64 told;
	int i;

	require_reporting();
	ASSERT(find_balloon(name, sizeof(name)), "no balloon");
	actor = start_with_garbage("20", "60", "0");
	have(&actor, "free");
	for (i = 0; i < 5; i++) {
		reporter = actor_start(NOBODY, "reporter_of_one", NULL);
		actor_tell(&reporter, "%d", actor.partition);
		actor_hear(&reporter);
		ASSERT(write_text(BALLOON_DRIVER "/unbind", name), "unbind: %m");
		ASSERT(!strcmp(actor_hear(&reporter), "EOPNOTSUPP"), "another error");
		ASSERT_ERRNO(report(actor.partition, ""), EOPNOTSUPP);
		ASSERT(write_text(BALLOON_DRIVER "/bind", name), "bind: %m");
		actor_kill(&reporter);
		have(&actor, "reuse");
		assert_kept(&actor, "check garbage");
		have(&actor, "free");
	}
	told = reported(actor.partition);
	OK(report(actor.partition, ""));
	ASSERT_GE(reported(actor.partition) - told, percent(60) / 10 * 9);
	assert_kept(&actor, "check");
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
	snprintf(path, sizeof(path), VIRTIO_DEVICES "%s/../config", name);
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
TEST(a_host_that_does_not_answer_holds_up_one_partition, .seconds = 120, .may_leak = true)
{
	struct actor actor, other, waiting;
	u64 free;

	require_reporting();
	actor = start_with_garbage("20", "60", "0");
	other = start_with_garbage("20", "60", "0");
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
	assert_kept(&actor, "check");
	assert_kept(&other, "check garbage");
	/* It needs what the host has, and waits; it is not killed for it, but can be. */
	actor_tell(&actor, "reuse");
	sleep_ms(1000);
	ASSERT(actor_alive(&actor), "killed");
	actor_kill(&actor);
	actor_kill(&other);
	ASSERT(partition_is(actor.partition, "assigned"), "%s", partition_state(actor.partition));
}
