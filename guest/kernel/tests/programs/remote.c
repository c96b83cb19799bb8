// SPDX-License-Identifier: GPL-2.0
/*
 * Processes outside that read and write the memory of an instance: what they have allocated is in
 * its partition, and they hold nothing of it once it has ended.
 */
#define _GNU_SOURCE
#include "actor.h"
#include "harness.h"
#include "memory.h"
#include "pages.h"
#include "squeezy.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

ACTOR(maps_and_waits)
{
	tell("%p", map_anon(4 * MIB));
	while (!strcmp(hear(), "look")) {
		assert_confined(getpid(), 1);
		tell("confined");
	}
}

static void remote_fault(void (*fault)(struct actor *actor, char *remote))
{
	struct actor actor;
	struct audit seen;
	char *remote;

	require_partitions();
	actor = actor_start(ANY, "maps_and_waits", NULL);
	remote = (char *)strtoull(actor_hear(&actor), NULL, 0);
	fault(&actor, remote);
	audit(actor.pid, actor.partition, &seen);
	ASSERT(!seen.anon_outside, "%lu pages outside; first: %s", seen.anon_outside,
	       seen.first_outside);
	ASSERT_EQ(place_of(pagemap_entry(actor.pid, remote) & PAGEMAP_PFN), actor.partition);
	actor_tell(&actor, "look");
	actor_hear(&actor);
	actor_tell(&actor, "go");
	actor_join(&actor);
}

static void by_process_vm_writev(struct actor *actor, char *remote)
{
	char *local = map_anon(4 * MIB);
	struct iovec from = { local, 4 * MIB }, to = { remote, 4 * MIB };

	fill(local, 4 * MIB, 1);
	if (process_vm_writev(actor->pid, &from, 1, &to, 1, 0) < 0) {
		if (errno == ENOSYS)
			skip("no process_vm_writev: CONFIG_CROSS_MEMORY_ATTACH");
		FAIL("process_vm_writev: %m");
	}
}

TEST(remote_faults_of_process_vm_writev)
{
	remote_fault(by_process_vm_writev);
}

static void by_proc_mem(struct actor *actor, char *remote)
{
	char path[64], *local = map_anon(4 * MIB);
	int fd;

	fill(local, 4 * MIB, 1);
	snprintf(path, sizeof(path), "/proc/%d/mem", actor->pid);
	fd = OK(open(path, O_RDWR));
	ASSERT_EQ(pwrite(fd, local, 4 * MIB, (off_t)(uintptr_t)remote), 4 * MIB);
	close(fd);
}

TEST(remote_faults_of_proc_pid_mem)
{
	remote_fault(by_proc_mem);
}

static void by_ptrace(struct actor *actor, char *remote)
{
	int status;
	u64 i;

	OK(ptrace(PTRACE_ATTACH, actor->pid, NULL, NULL));
	OK(waitpid(actor->pid, &status, 0));
	for (i = 0; i < MIB; i += PAGE)
		OK(ptrace(PTRACE_POKEDATA, actor->pid, remote + i, 1L));
	/* A page of code, too: the debugger's copy is private. */
	OK(ptrace(PTRACE_POKEDATA, actor->pid, (void *)((uintptr_t)by_ptrace & ~7ul),
		  *(long *)((uintptr_t)by_ptrace & ~7ul)));
	OK(ptrace(PTRACE_DETACH, actor->pid, NULL, NULL));
}

TEST(remote_faults_of_ptrace)
{
	remote_fault(by_ptrace);
}

ACTOR(has_memory_to_look_at)
{
	char *memory = map_anon(16 * MIB);

	fill(memory, 16 * MIB, 1);
	tell("%p", memory);
	hear();
}

TEST(an_open_proc_pid_mem_holds_nothing)
{
	struct actor actor;
	char path[64], byte;
	int fd;

	require_partitions();
	actor = actor_start(ANY, "has_memory_to_look_at", NULL);
	actor_hear(&actor);
	snprintf(path, sizeof(path), "/proc/%d/mem", actor.pid);
	fd = OK(open(path, O_RDWR));
	actor_kill(&actor);
	ASSERT(WAIT_FOR(partition_is(actor.partition, "free"), PROMPT_MS), "%s",
	       partition_state(actor.partition));
	ASSERT_EQ(pread(fd, &byte, 1, 0x1000), 0);
	close(fd);
}

/* Reads another process's memory for as long as it is there. */
ACTOR(keeps_reading)
{
	pid_t pid = atoi(argv[0]);
	char *remote = (char *)strtoull(argv[1], NULL, 0), *local = map_anon(MIB);
	struct iovec to = { local, MIB }, from = { remote, MIB };
	u64 rounds = 0;

	tell("reading");
	while (process_vm_readv(pid, &to, 1, &from, 1, 0) > 0)
		rounds++;
	if (errno == ENOSYS)
		skip("no process_vm_readv: CONFIG_CROSS_MEMORY_ATTACH");
	ASSERT(rounds || errno == ESRCH || errno == EFAULT, "process_vm_readv: %m");
}

TEST(readers_of_a_dying_process)
{
	struct actor actor, readers[3];
	char pid[16], address[32];
	int i, round;

	require_partitions();
	for (round = 0; round < 5; round++) {
		actor = actor_start(ANY, "has_memory_to_look_at", NULL);
		strcpy(address, actor_hear(&actor));
		snprintf(pid, sizeof(pid), "%d", actor.pid);
		for (i = 0; i < 3; i++) {
			readers[i] = actor_start(NOBODY, "keeps_reading", pid, address, NULL);
			actor_hear(&readers[i]);
		}
		actor_kill(&actor);
		for (i = 0; i < 3; i++)
			actor_join(&readers[i]);
		ASSERT(WAIT_FOR(partition_is(actor.partition, "free"), PROMPT_MS), "%s",
		       partition_state(actor.partition));
	}
}
