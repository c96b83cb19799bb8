// SPDX-License-Identifier: GPL-2.0-only
#include "counters.h"

atomic_long_t llfree_counters[LLFREE_COUNTERS];
