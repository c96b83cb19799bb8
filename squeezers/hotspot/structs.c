// SPDX-License-Identifier: Apache-2.0 OR MIT
#include "structs.h"

#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

/* No build of HotSpot has more; what has more is no such table. */
#define MOST_ENTRIES 20000
#define LONGEST_ENTRY 256
/* A type inherits from a handful of others; a circle would never end. */
#define DEEPEST 16

/* An entry's layout stands in variables of the library: here are their values. */
static struct {
	const char *first;
	uint64_t stride, type, field, is_static, offset, address;
} fields;

static struct {
	const char *first;
	uint64_t stride, name, superclass, size;
} types;

static char missing[128];

#define TEXT_AT(entry, offset) STRUCTS_AT(const char *, entry, offset)

bool structs_open(void *library)
{
	const struct {
		const char *name;
		void *value;
	} symbols[] = {
		{"gHotSpotVMStructs", &fields.first},
		{"gHotSpotVMStructEntryArrayStride", &fields.stride},
		{"gHotSpotVMStructEntryTypeNameOffset", &fields.type},
		{"gHotSpotVMStructEntryFieldNameOffset", &fields.field},
		{"gHotSpotVMStructEntryIsStaticOffset", &fields.is_static},
		{"gHotSpotVMStructEntryOffsetOffset", &fields.offset},
		{"gHotSpotVMStructEntryAddressOffset", &fields.address},
		{"gHotSpotVMTypes", &types.first},
		{"gHotSpotVMTypeEntryArrayStride", &types.stride},
		{"gHotSpotVMTypeEntryTypeNameOffset", &types.name},
		{"gHotSpotVMTypeEntrySuperclassNameOffset", &types.superclass},
		{"gHotSpotVMTypeEntrySizeOffset", &types.size},
	};

	for (size_t i = 0; i < sizeof(symbols) / sizeof(*symbols); i++) {
		const void *symbol = dlsym(library, symbols[i].name);

		if (!symbol)
			return false;
		memcpy(symbols[i].value, symbol, sizeof(uint64_t));
	}
	return fields.first && types.first && fields.stride <= LONGEST_ENTRY && types.stride <= LONGEST_ENTRY;
}

static const char *find_field(const char *type, const char *field)
{
	const char *entry = fields.first;

	for (int i = 0; i < MOST_ENTRIES && TEXT_AT(entry, fields.type); i++, entry += fields.stride)
		if (!strcmp(TEXT_AT(entry, fields.type), type) && TEXT_AT(entry, fields.field) &&
		    !strcmp(TEXT_AT(entry, fields.field), field))
			return entry;
	return NULL;
}

static const char *find_type(const char *name)
{
	const char *entry = types.first;

	for (int i = 0; i < MOST_ENTRIES && TEXT_AT(entry, types.name); i++, entry += types.stride)
		if (!strcmp(TEXT_AT(entry, types.name), name))
			return entry;
	return NULL;
}

static void note_missing(const char *type, const char *field)
{
	if (!missing[0])
		snprintf(missing, sizeof(missing), "%s::%s", type, field);
}

bool structs_offset(const char *type, const char *field, size_t *offset)
{
	const char *name = type;

	for (int depth = 0; name && depth < DEEPEST; depth++) {
		const char *entry = find_field(name, field);
		const char *declaration;

		if (entry) {
			if (STRUCTS_AT(int32_t, entry, fields.is_static))
				break;
			*offset = STRUCTS_AT(uint64_t, entry, fields.offset);
			return true;
		}
		declaration = find_type(name);
		name = declaration ? TEXT_AT(declaration, types.superclass) : NULL;
	}
	note_missing(type, field);
	return false;
}

void *structs_static(const char *type, const char *field)
{
	const char *entry = find_field(type, field);

	if (!entry || !STRUCTS_AT(int32_t, entry, fields.is_static)) {
		note_missing(type, field);
		return NULL;
	}
	return STRUCTS_AT(void *, entry, fields.address);
}

bool structs_size(const char *type, size_t *size)
{
	const char *entry = find_type(type);

	if (!entry)
		return false;
	*size = STRUCTS_AT(uint64_t, entry, types.size);
	return true;
}

const char *structs_missing(void)
{
	return missing[0] ? missing : NULL;
}
