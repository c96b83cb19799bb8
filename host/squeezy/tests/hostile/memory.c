/* Attacks on memory that processes map: that of its partition, and the tables for it outside. */
#define _GNU_SOURCE
#include "hostile.h"

#include <string.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/shm.h>

#define PAGE 4096

static void map_and_fill(int flags)
{
	for (;;) {
		char *memory = mmap(NULL, 16 * MIB, PROT_READ | PROT_WRITE,
				    flags | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

		if (memory == MAP_FAILED)
			return;
		memset(memory, 0x5a, 16 * MIB);
	}
}

ATTACK(private_memory)
{
	map_and_fill(MAP_PRIVATE);
}

ATTACK(shared_memory)
{
	map_and_fill(MAP_SHARED);
}

ATTACK(sysv_segments)
{
	for (;;) {
		int id = shmget(IPC_PRIVATE, 16 * MIB, 0600);
		char *memory = id < 0 ? (void *)-1 : shmat(id, NULL, 0);

		if (memory == (void *)-1)
			return;
		memset(memory, 0x5a, 16 * MIB);
	}
}

/* Memory that is locked, lazily freed and taken again, over and over. */
ATTACK(lazily_freed)
{
	const size_t bytes = 64 * MIB;
	char *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (memory == MAP_FAILED)
		return;
	for (;;) {
		memset(memory, 0x5a, bytes);
		if (madvise(memory, bytes, MADV_FREE))
			return;
	}
}

/* Reads of memory that nobody has written take no page, but a page of tables for each 2 MiB. */
ATTACK(page_tables)
{
	const size_t bytes = 1ul << 40;

	for (;;) {
		volatile char *memory = mmap(NULL, bytes, PROT_READ,
					     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
		size_t at;

		if (memory == MAP_FAILED)
			return;
		for (at = 0; at < bytes; at += 2 * MIB)
			(void)memory[at];
	}
}

static void one_process_of_areas(void)
{
	int i;

	/* Neighbours that differ are not merged: an area for each page. */
	for (i = 0; i < 65000; i++)
		if (mmap(NULL, PAGE, i % 2 ? PROT_READ : PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED)
			return;
}

ATTACK(areas)
{
	in_many_processes(one_process_of_areas);
}
