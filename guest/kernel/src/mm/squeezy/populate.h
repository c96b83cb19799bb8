/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef _MM_SQUEEZY_POPULATE_H
#define _MM_SQUEEZY_POPULATE_H

#include "run.h"

int squeezy_populate(struct squeezy_run *run, unsigned int *done);
int squeezy_populate_owed(struct squeezy_run *run);
int squeezy_give_back(struct squeezy_run *run);

#endif /* _MM_SQUEEZY_POPULATE_H */
