/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef _MM_SQUEEZY_DOOM_H
#define _MM_SQUEEZY_DOOM_H

#include "core.h"

int squeezy_doom(struct squeezy_partition *p);
int squeezy_undoom(struct squeezy_partition *p);

#endif /* _MM_SQUEEZY_DOOM_H */
