/* SPDX-License-Identifier: GPL-2.0 */
/* Memory in pieces: half of it is free, and next to nothing of it in more than single pages. */
#ifndef SQUEEZY_TEST_PIECES_H
#define SQUEEZY_TEST_PIECES_H

#include "actor.h"
#include "memory.h"

/* What is not in pieces afterwards; and page tables. */
#define LEFT_WHOLE	(8 * MIB)

/* Starts a process that has the other half, until it is killed. */
struct actor in_pieces(void);
/* The same, and it frees a page here and takes one there all the time. */
struct actor in_pieces_that_change(void);
/* Pages that compaction has moved. */
u64 moved(void);

#endif
