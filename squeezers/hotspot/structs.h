// SPDX-License-Identifier: Apache-2.0 OR MIT
/*
 * The tables in which HotSpot describes its own data structures (gHotSpotVMStructs and its kin). They
 * are exported for the Serviceability Agent, which is the reason why they are right in every build.
 */
#ifndef SQUEEZY_STRUCTS_H
#define SQUEEZY_STRUCTS_H

#include <stdbool.h>
#include <stddef.h>

/* Finds the tables in a library (a handle of dlopen). False where it has none. */
bool structs_open(void *library);

/* The field's place in an object of the type, or of a type it inherits from. */
bool structs_offset(const char *type, const char *field, size_t *offset);

/* The address of a static field; NULL where there is none. */
void *structs_static(const char *type, const char *field);

/* Whether the type is there, and its size in bytes. */
bool structs_size(const char *type, size_t *size);

/* What was asked for first and not found, as "Type::field"; NULL when nothing was missing. */
const char *structs_missing(void);

/* Field of a type T at an offset into an object. */
#define STRUCTS_AT(T, object, offset) (*(T *)((char *)(object) + (offset)))

#endif
