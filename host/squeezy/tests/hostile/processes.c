/* Attacks with processes and threads. */
#define _GNU_SOURCE
#include "hostile.h"

#include <string.h>
#include <unistd.h>

ATTACK(fork_bomb)
{
	for (;;)
		if (fork() < 0)
			usleep(1000);
}

ATTACK(threads)
{
	in_many_threads(wait_for_ever);
}

static void execute_with_arguments(void)
{
	static char text[100 << 10];
	char *arguments[18] = { "hostile", "wait" };
	int i;

	memset(text, 'x', sizeof(text) - 1);
	for (i = 2; i < 17; i++)
		arguments[i] = text;
	execv("/hostile", arguments);
}

ATTACK(arguments)
{
	in_many_processes(execute_with_arguments);
}

/*
 * What all others are compared with: it only takes its share of the processors, and of each of them,
 * as the others do with their many processes.
 */
ATTACK(spin)
{
	long others = sysconf(_SC_NPROCESSORS_ONLN) - 1;

	while (others-- > 0 && fork())
		;
	for (;;)
		;
}
