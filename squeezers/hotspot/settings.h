// SPDX-License-Identifier: Apache-2.0 OR MIT
/*
 * How thoroughly HotSpot collects. By default it leaves some garbage in place where that saves time, and
 * keeps softly held objects (caches) as long as the heap has room.
 */
#ifndef SQUEEZY_SETTINGS_H
#define SQUEEZY_SETTINGS_H

#include <stdbool.h>

/* After flags_open(). */
void settings_prepare(void);

/*
 * The collection that begins now leaves no garbage and, if asked, drops what is softly held. For use while
 * the VM is stopped, before it collects.
 */
void settings_thorough(bool drop_soft);

/* As they were; nothing, if settings_thorough() was not called. Before the VM goes on. */
void settings_restore(void);

#endif
