// SPDX-License-Identifier: GPL-2.0
/* The free lists have all memory. */
#include "harness.h"

#include <errno.h>
#include <unistd.h>

TEST(nothing_is_llfrees)
{
	ASSERT(access("/sys/kernel/mm/llfree", F_OK) && errno == ENOENT, "%m");
}
