/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef _MM_SQUEEZY_RETRY_H
#define _MM_SQUEEZY_RETRY_H

#include <linux/types.h>

void squeezy_back_off(int rc);
void squeezy_stop_backing_off(void);
bool squeezy_may_populate(void);
void squeezy_memory_freed(void);
void squeezy_cancel_retry(void);

#endif /* _MM_SQUEEZY_RETRY_H */
