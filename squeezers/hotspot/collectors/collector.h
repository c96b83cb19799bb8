// SPDX-License-Identifier: Apache-2.0 OR MIT
/* What the squeezer has to know of a collector: where its spaces are. One file each. */
#ifndef SQUEEZY_COLLECTOR_H
#define SQUEEZY_COLLECTOR_H

#include <stdbool.h>
#include <stddef.h>

/* HotSpot's CollectedHeap, and the addresses it has reserved for Java objects. */
struct heap {
	char *object;
	char *start, *end;
};

/* A space: objects lie in [bottom, top), nothing in [top, end). */
struct space {
	char *bottom, *top, *end;
};

struct collector {
	const char *name;
	/* The -XX flag that selects it. */
	const char *flag;
	/* Looks up what spaces() reads. False where the JVM's tables lack something. */
	bool (*prepare)(void);
	/* How many spaces there can be; constant while the JVM runs. */
	size_t (*most_spaces)(const struct heap *heap);
	/*
	 * The spaces as they are now: at most most_spaces(), of which none are checked. Zero if they cannot be
	 * what is known of this collector. For use while the VM is stopped.
	 */
	size_t (*spaces)(const struct heap *heap, struct space *spaces);
};

extern const struct collector collector_serial, collector_parallel, collector_g1;

#endif
