/* SPDX-License-Identifier: GPL-2.0 */
/* The simplest stragglers: pages in a pipe that outlives the process that has put them there. */
#ifndef SQUEEZY_TEST_STRAGGLERS_H
#define SQUEEZY_TEST_STRAGGLERS_H

#include "harness.h"

#define STRAGGLERS	16	/* pages */

struct stragglers {
	int partition;		/* that of the process that has ended */
	int pipe;		/* what holds them: its readable end */
};

/* Has a process in @partition (a number or ANY) leave some: it has filled them and ended. */
struct stragglers leave_stragglers(int partition);
/* Reads them, which frees the pages; the pipe stays open. */
void read_stragglers(const struct stragglers *left);

#endif
