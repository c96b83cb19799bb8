// SPDX-License-Identifier: GPL-2.0
/* See failed.h. */
#include "failed.h"
#include "pages.h"
#include "system.h"

#include <linux/kernel-page-flags.h>

u64 corrupted_bytes(void)
{
	return read_field("/proc/meminfo", "HardwareCorrupted") * KIB;
}

bool is_poisoned(u64 pfn)
{
	return page_flags(pfn) >> KPF_HWPOISON & 1;
}

void have_fail(u64 pfn, const char *file)
{
	char path[128], address[32];

	snprintf(path, sizeof(path), "/sys/devices/system/memory/%s", file);
	snprintf(address, sizeof(address), "%#llx", pfn * PAGE);
	ASSERT(write_text(path, address), "%s: %m", file);
}
