// SPDX-License-Identifier: GPL-2.0
/*
 * Has the host take free memory out of the guest every 20 ms, while the programs after this one
 * run. The host sees at the end that it did.
 */
#include "harness.h"
#include "host.h"
#include "system.h"

#include <stdio.h>

#define STATE "/sys/kernel/mm/llfree/state"

TEST(begins)
{
	unsigned long long address, bytes;
	char text[64];

	ASSERT(read_text(STATE, text, sizeof(text)), "%s: %m", STATE);
	ASSERT(sscanf(text, "%llx %llu", &address, &bytes) == 2, "%s", text);
	host_take(address, bytes);
}
