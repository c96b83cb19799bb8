// SPDX-License-Identifier: Apache-2.0 OR MIT
#include "flags.h"
#include "structs.h"

#include <string.h>

#define MOST_FLAGS 20000

static struct {
	char *first;
	size_t count, size, name, address;
} flags;

bool flags_open(void)
{
	char **first = structs_static("JVMFlag", "flags");
	size_t *count = structs_static("JVMFlag", "numFlags");

	if (!first || !count || !structs_size("JVMFlag", &flags.size) ||
	    !structs_offset("JVMFlag", "_name", &flags.name) || !structs_offset("JVMFlag", "_addr", &flags.address))
		return false;
	flags.first = *first;
	flags.count = *count;
	return flags.first && flags.count <= MOST_FLAGS;
}

void *flag_address(const char *wanted)
{
	for (size_t i = 0; i < flags.count; i++) {
		char *flag = flags.first + i * flags.size;
		const char *name = STRUCTS_AT(const char *, flag, flags.name);

		if (name && !strcmp(name, wanted))
			return STRUCTS_AT(void *, flag, flags.address);
	}
	return NULL;
}

bool flag_is_on(const char *name)
{
	const bool *value = flag_address(name);

	return value && *value;
}

bool flag_has_text(const char *name)
{
	const char *const *value = flag_address(name);

	return value && *value && **value;
}
