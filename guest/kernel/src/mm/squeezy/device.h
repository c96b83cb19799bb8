/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef _MM_SQUEEZY_DEVICE_H
#define _MM_SQUEEZY_DEVICE_H

#include "core.h"

void squeezy_set_device(const struct squeezy_device_ops *ops, void *owner,
			u64 addr, int mgid);
void squeezy_clear_device(void);
bool squeezy_is_owner(void *owner);
int squeezy_device_mgid(void);
bool squeezy_is_usable(struct squeezy_partition *p);

int squeezy_device_plug(u64 addr, u64 size);
int squeezy_device_unplug(u64 addr, u64 size);
void squeezy_device_kick(void);

unsigned int squeezy_surplus(unsigned int *counts);

#endif /* _MM_SQUEEZY_DEVICE_H */
