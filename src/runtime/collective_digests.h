// SPDX-License-Identifier: Apache-2.0
/* Hashes of what collectives give: two runs of one program that are deterministic have the same. */
#ifndef TSR_RUNTIME_COLLECTIVE_DIGESTS_H
#define TSR_RUNTIME_COLLECTIVE_DIGESTS_H
#include "runtime/process.h"

typedef struct {
  int64_t step, microbatch;
  int rank, stage, task; /* of the stage's program */
  int order;             /* how many ended before it; of a stage always the same */
  uint64_t hash;         /* XXH3-64 of the rank's output */
} tsr_collective_digest;

typedef struct {
  tsr_arena *arena;
  tsr_collective_digest *items;
  int count, capacity;
} tsr_collective_digests;

/* From now on every collective that ends adds a digest for each of its ranks here. A device is
 * waited for after each of them, and steps are not captured. NULL: no more. `digests` must outlive
 * that. */
void tsr_executable_digest(tsr_executable *executable, tsr_collective_digests *digests);

#endif
