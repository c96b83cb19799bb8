// SPDX-License-Identifier: Apache-2.0 OR MIT
/* Speaks the protocol of ../README.md. */
#ifndef SQUEEZY_SERVE_H
#define SQUEEZY_SERVE_H

#include "runtime.h"

/* One client after the other; returns only if the socket breaks. In a thread that is attached to the VM. */
void serve_clients(int listener, jvmtiEnv *jvmti, const struct runtime *runtime);

#endif
