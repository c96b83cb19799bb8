// SPDX-License-Identifier: Apache-2.0 OR MIT
/* Gives the free memory of all spaces back to the operating system. */
#ifndef SQUEEZY_RELEASE_H
#define SQUEEZY_RELEASE_H

#include "collectors/collector.h"

#include <stdint.h>

struct release {
	/* Bytes below the tops, and bytes that were given back. */
	uint64_t live_bytes, advised_bytes;
	/* NULL, or why not all was given back. */
	const char *error;
};

/*
 * Only while the VM is stopped. `spaces` has room for all that the collector has. All spaces are checked
 * before the first is touched; if one cannot be right, nothing is given back.
 */
void release_free_memory(const struct collector *collector, const struct heap *heap, struct space *spaces,
			 struct release *release);

#endif
