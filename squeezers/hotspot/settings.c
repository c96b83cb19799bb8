// SPDX-License-Identifier: Apache-2.0 OR MIT
#include "settings.h"
#include "flags.h"

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* A flag that HotSpot reads anew in each collection. */
struct setting {
	const char *name;
	/* Bytes to write. MarkSweepDeadRatio is a percentage, and has 4 bytes or (before JDK 25) 8. */
	size_t size;
	int64_t thorough;
	/* Only to drop what is softly held. */
	bool soft;
	void *address;
	int64_t normal;
};

static struct setting settings[] = {
	/* Serial lets garbage at the bottom of the old generation lie in all but each fourth collection. */
	{.name = "MarkSweepAlwaysCompactCount", .size = 4, .thorough = 1},
	/* Parallel does so in all but each twentieth. */
	{.name = "HeapMaximumCompactionInterval", .size = 8, .thorough = 0},
	/* G1 does not compact regions in which less than this percentage is garbage. */
	{.name = "MarkSweepDeadRatio", .size = 4, .thorough = 0},
	/*
	 * What was not used for that many milliseconds for each free megabyte of the heap is dropped. Below
	 * zero everything is, also what was used since the last collection.
	 */
	{.name = "SoftRefLRUPolicyMSPerMB", .size = 8, .thorough = -1, .soft = true},
};

#define COUNT (sizeof(settings) / sizeof(*settings))

static bool changed;

void settings_prepare(void)
{
	for (size_t i = 0; i < COUNT; i++)
		settings[i].address = flag_address(settings[i].name);
}

void settings_thorough(bool drop_soft)
{
	/* Pauses can be nested. */
	if (changed)
		return;
	changed = true;
	for (size_t i = 0; i < COUNT; i++) {
		struct setting *setting = &settings[i];

		if (!setting->address)
			continue;
		memcpy(&setting->normal, setting->address, setting->size);
		if (drop_soft || !setting->soft)
			memcpy(setting->address, &setting->thorough, setting->size);
	}
}

void settings_restore(void)
{
	if (!changed)
		return;
	changed = false;
	for (size_t i = 0; i < COUNT; i++)
		if (settings[i].address)
			memcpy(settings[i].address, &settings[i].normal, settings[i].size);
}
