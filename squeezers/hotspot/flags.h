// SPDX-License-Identifier: Apache-2.0 OR MIT
/* The values of -XX flags, from HotSpot's own table of them. */
#ifndef SQUEEZY_FLAGS_H
#define SQUEEZY_FLAGS_H

#include <stdbool.h>

/* After structs_open(). False where the table is not there. */
bool flags_open(void);

/* False also where this JVM has no flag of that name. */
bool flag_is_on(const char *name);
bool flag_has_text(const char *name);

/* Where the value stands; NULL where this JVM has no flag of that name. */
void *flag_address(const char *name);

#endif
