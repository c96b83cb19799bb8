/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef _MM_SQUEEZY_SYSFS_H
#define _MM_SQUEEZY_SYSFS_H

int squeezy_init_sysfs(void);

#endif /* _MM_SQUEEZY_SYSFS_H */
