// SPDX-License-Identifier: Apache-2.0
/* How many choices of a step's tokens went to each expert, of each layer that has them. */
#ifndef TSR_TRAIN_EXPERT_LOAD_H
#define TSR_TRAIN_EXPERT_LOAD_H
#include "report/metrics.h"
#include "runtime/process.h"
#include "train/compile.h"

typedef struct {
  int layers;
  int *values, *rows; /* of the placed graph, per layer; rows -1: no choice is dropped */
  tsr_metrics_experts *experts;
  float *digits; /* room for the largest layer's (2, E) */
} tsr_expert_load;

/* No layers where the graph has no choices of experts. */
tsr_expert_load tsr_expert_load_of(tsr_arena *arena, const tsr_graph *placed);
/* After a step, on all processes alike. */
void tsr_expert_load_read(const tsr_expert_load *load, const tsr_executable *executable);

#endif
