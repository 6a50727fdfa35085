// SPDX-License-Identifier: Apache-2.0
/* Small things that all processes must know of each other. */
#ifndef TSR_COMM_BOOTSTRAP_H
#define TSR_COMM_BOOTSTRAP_H
#include "comm/transport.h"

/* Everybody's `bytes` to everybody, in the order of the processes. Waits for `timeout_s` at most
 * (0: for ever); false with `why` (TSR_WHY_BYTES), which names the processes that nothing came
 * from. A process that is alone has only its own. */
bool tsr_transport_gather(
    const tsr_transport *transport, const void *mine, int64_t bytes, void *ret_all,
    double timeout_s, char *why);

/* `bytes[p]` bytes of every process p to process 0, one after the other in its `ret_all`; all
 * processes know `bytes`. Waits as above. */
bool tsr_transport_collect(
    const tsr_transport *transport, const void *mine, const int64_t *bytes, void *ret_all,
    double timeout_s, char *why);

/* The same text from process 0, in `arena`. */
bool tsr_transport_share_text(
    tsr_arena *arena, const tsr_transport *transport, const char *mine, const char **ret_first,
    double timeout_s, char *why);

/* Everybody's process (peers.h) to everybody; transport->peers has them from then on, and
 * memory may be shared. Waits as above. */
bool tsr_peers_exchange(tsr_arena *arena, tsr_transport *transport, double timeout_s, char *why);

#endif
