/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Memory on its way through a TCP connection without having been copied: buffers of the network
 * have pages of the sender's, until they have been received.
 *
 * There are three ACTOR()s that send. Each passes the receiving end on, says when all is sent, and
 * does nothing more:
 *
 *  sends_memory			with MSG_ZEROCOPY
 *  sends_memory_through_a_pipe		with vmsplice(2) and splice(2)
 *  sends_a_file			that lives in memory, with sendfile(2)
 */
#ifndef SQUEEZY_TEST_SENT_H
#define SQUEEZY_TEST_SENT_H

#include "harness.h"

/* Receives all of it, which has to be what was sent. The connection stays open. */
void receive_sent(int receiver);

#endif
