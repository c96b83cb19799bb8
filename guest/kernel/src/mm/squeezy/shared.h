/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef _MM_SQUEEZY_SHARED_H
#define _MM_SQUEEZY_SHARED_H

void squeezy_init_shared(void);

#endif /* _MM_SQUEEZY_SHARED_H */
