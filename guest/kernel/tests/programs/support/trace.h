/* SPDX-License-Identifier: GPL-2.0 */
/* What the kernel traces: /sys/kernel/tracing. */
#ifndef SQUEEZY_TEST_TRACE_H
#define SQUEEZY_TEST_TRACE_H

#include "harness.h"

/* Has the events of this name, GROUP/NAME, traced from now on, or no longer. */
void trace_events(const char *name, bool on);
/* Whether the trace has an event of a process, of any one for 0, with both of these words. */
bool trace_has(pid_t pid, const char *a, const char *b);

#endif
