/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef _MM_SQUEEZY_REPORT_H
#define _MM_SQUEEZY_REPORT_H

#include "core.h"

int squeezy_report_partition(struct squeezy_partition *p, unsigned int order);

#endif /* _MM_SQUEEZY_REPORT_H */
