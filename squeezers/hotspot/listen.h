// SPDX-License-Identifier: Apache-2.0 OR MIT
/* The squeezer's socket in the file system. */
#ifndef SQUEEZY_LISTEN_H
#define SQUEEZY_LISTEN_H

/* Makes it. -1 if it cannot be made; why is said in one line on standard error. */
int listen_open(void);

/* Removes its file, if that is still the one that listen_open() made. */
void listen_remove(void);

#endif
