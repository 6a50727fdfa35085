// SPDX-License-Identifier: Apache-2.0
/* The hash of a rank's part of a tensor in the host's memory. */
#ifndef TSR_DEVICE_CPU_PART_HASH_H
#define TSR_DEVICE_CPU_PART_HASH_H
#include "device/cpu/ops.h"

/* By all threads of a pool. */
uint64_t tsr_cpu_hash_part(const tsr_kernels *k, tsr_pool *pool, const tsr_hash_part *part);
/* Elements [begin, end) of it, by this thread. */
uint64_t
tsr_cpu_hash_range(const tsr_kernels *k, const tsr_hash_part *part, int64_t begin, int64_t end);

/* ---- of what a task that updates a parameter writes ---- */

typedef struct {
  uint64_t *sum; /* NULL: it is not hashed */
  tsr_hash_part part;
} cpu_update_hash;

/* Of the call's first input. */
cpu_update_hash cpu_update_hash_of(const cpu_call *call);
/* Adds elements [begin, end), which this thread has written. */
void cpu_update_hash_add(
    const cpu_call *call, const cpu_update_hash *hash, int64_t begin, int64_t end);
/* All of it at once. */
void cpu_update_hash_all(const cpu_call *call);

#endif
