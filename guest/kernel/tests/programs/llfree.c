// SPDX-License-Identifier: GPL-2.0
/* With llfree=partitions: where the host finds the state, and that reports have nothing to do. */
#include "harness.h"
#include "memory.h"
#include "reporting.h"
#include "squeezy.h"
#include "system.h"

#include <errno.h>
#include <stdio.h>

#define STATE "/sys/kernel/mm/llfree/state"

TEST(the_state_is_announced)
{
	unsigned long long address, bytes, most;
	char text[64];

	ASSERT(read_text(STATE, text, sizeof(text)), "%s: %m", STATE);
	ASSERT(sscanf(text, "%llx %llu", &address, &bytes) == 2, "%s", text);
	ASSERT(address && !(address % PAGE) && !(bytes % PAGE), "%s", text);
	/* And a header of 11 KiB. */
	most = partitions() * partition_bytes() / (1024 * MIB / (36 * 1024)) + 4 * PAGE;
	ASSERT(bytes <= most, "%llu bytes, at most %llu are right", bytes, most);
}

TEST(partitions_do_not_have_to_be_reported)
{
	ASSERT_ERRNO(report(0, ""), EOPNOTSUPP);
}
