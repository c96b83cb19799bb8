// SPDX-License-Identifier: Apache-2.0 OR MIT
#include "settings.h"
#include "flags.h"

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Flags that HotSpot reads anew in each collection. The VM itself changes the first two this way when it
 * is about to run out of memory. */
static struct {
	const char *name;
	/* Of the flag in all versions; MarkSweepDeadRatio is at most 100, and has 8 bytes before JDK 25. */
	size_t size;
	int64_t thorough;
	bool soft;
	void *address;
	int64_t normal;
} settings[] = {
	/* Serial lets garbage at the bottom of the old generation lie in all but each fourth collection. */
	{.name = "MarkSweepAlwaysCompactCount", .size = 4, .thorough = 1},
	/* Parallel does so in all but each twentieth. */
	{.name = "HeapMaximumCompactionInterval", .size = 8, .thorough = 0},
	/* G1 does not compact regions in which less than this percentage is garbage. */
	{.name = "MarkSweepDeadRatio", .size = 4, .thorough = 0},
	/* What was not used for that many milliseconds for each free megabyte of the heap is dropped. Below
	 * zero everything is, also what was used since the last collection. */
	{.name = "SoftRefLRUPolicyMSPerMB", .size = 8, .thorough = -1, .soft = true},
};

#define FOR_EACH(setting) \
	for (__typeof__(&settings[0]) setting = settings; setting < settings + sizeof(settings) / sizeof(*settings); setting++)

static bool changed;

void settings_prepare(void)
{
	FOR_EACH(setting)
		setting->address = flag_address(setting->name);
}

void settings_thorough(bool drop_soft)
{
	/* Pauses can be nested. */
	if (changed)
		return;
	changed = true;
	FOR_EACH(setting) {
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
	FOR_EACH(setting)
		if (setting->address)
			memcpy(setting->address, &setting->normal, setting->size);
}
