// SPDX-License-Identifier: Apache-2.0
/* The processes of one host map each other's memory, so that a collective reads its operands and
 * writes its results where they lie (algorithm_shared_sum.c). */
#ifndef TSR_COMM_PEER_MEMORY_H
#define TSR_COMM_PEER_MEMORY_H
#include "base/shared_memory.h"
#include "comm/transport.h"

typedef struct {
  void *memory; /* for munmap; NULL: it is not mapped */
  int64_t bytes;
} tsr_peer_block;

/* All processes call it together. Each gives `each` blocks, of which those with a file are shared,
 * and `ok`: whether it could make them all. ret_mapped[process * each + i] gets block i of another
 * process of this host; it stays as it is for this process's own, and those on another host.
 * `hosts`: per process, the same number on one host; NULL: all are on one.
 *
 * Either every process maps all that its host has, or none maps anything; then `why`
 * (TSR_WHY_BYTES) has the reason of the first process that could not; else it is empty. The blocks
 * are closed. False, with `why`: processes have not responded for timeout_s. */
bool tsr_peer_memory_map(
    const tsr_transport *transport, const int *hosts, tsr_shared_memory *blocks, int each, bool ok,
    tsr_peer_block *ret_mapped, double timeout_s, char *why);

#endif
