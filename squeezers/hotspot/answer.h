// SPDX-License-Identifier: Apache-2.0 OR MIT
/* What the squeezer says: lines of JSON. Each function returns the length of the line with its newline. */
#ifndef SQUEEZY_ANSWER_H
#define SQUEEZY_ANSWER_H

#include "squeeze.h"
#include "runtime.h"

#include <stddef.h>

/* Enough for every line that is made here. */
#define ANSWER_MOST_BYTES 2048

size_t answer_hello(const struct runtime *runtime, char line[ANSWER_MOST_BYTES]);
size_t answer_result(const struct answer *answer, char line[ANSWER_MOST_BYTES]);

#endif
