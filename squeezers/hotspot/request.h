// SPDX-License-Identifier: Apache-2.0 OR MIT
/* What a client may ask for: one line of JSON. */
#ifndef SQUEEZY_REQUEST_H
#define SQUEEZY_REQUEST_H

#include <stdbool.h>
#include <stddef.h>

#define REQUEST_MOST_BYTES 4096

struct request {
	bool heap, trim;
	/* Level "all"; else "keep". */
	bool all;
};

/* NULL, or what is wrong with the line (without its newline). */
const char *request_parse(const char *line, size_t length, struct request *request);

#endif
