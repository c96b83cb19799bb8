// SPDX-License-Identifier: Apache-2.0 OR MIT
/* The JVM that the squeezer is in: which one, with which collector, and whether the squeezer knows both. */
#ifndef SQUEEZY_RUNTIME_H
#define SQUEEZY_RUNTIME_H

#include "collectors/collector.h"

#include <jvmti.h>

struct runtime {
	char version[128];
	/* A collector's name, known or not; NULL if even that cannot be said. */
	const char *collector_name;
	/* Why nothing can be squeezed here, and what could be done about it; empty when it can. */
	char refused[256];
	/* The rest is valid when nothing is refused. */
	const struct collector *collector;
	struct heap heap;
	/* Counts pauses in which something was collected. */
	const volatile unsigned int *collections;
};

/* To be called when the VM is initialized: before that its flags and its heap are not final. */
void runtime_examine(JavaVM *vm, jvmtiEnv *jvmti, struct runtime *runtime);

#endif
