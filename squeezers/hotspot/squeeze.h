// SPDX-License-Identifier: Apache-2.0 OR MIT
/* Carries out a request. */
#ifndef SQUEEZY_SQUEEZE_H
#define SQUEEZY_SQUEEZE_H

#include "request.h"
#include "runtime.h"

#include <stdint.h>

struct answer {
	uint64_t before_bytes, after_bytes, live_bytes, advised_bytes, pause_ns, cpu_ns;
	/* NULL, or one sentence. */
	const char *error;
};

/* False where there is no memory for what it needs. Nothing is to be refused. */
bool squeeze_prepare(const struct runtime *runtime);

/* In a thread that is attached to the VM; one at a time. */
void squeeze_run(jvmtiEnv *jvmti, const struct request *request, struct answer *answer);

/* When the VM is about to end. */
void squeeze_ends(void);

/* The events of these names. */
void JNICALL squeeze_pause_starts(jvmtiEnv *jvmti);
void JNICALL squeeze_pause_ends(jvmtiEnv *jvmti);

#endif
