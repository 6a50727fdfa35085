// SPDX-License-Identifier: Apache-2.0
/* NaN among the scores from which experts are chosen: kernels choose all the same, so that a step
 * ends on every process, and note the place. */
#include "runtime/executable_internal.h"

void tsr_executable_begin_nan_scores(tsr_executable *b) {
  const tsr_graph *g = b->programs->graph;
  b->nan_scores = TSR_NAN_NOWHERE;
  for (int i = 0; i < g->nodes_count; i++)
    b->chooses_experts |= g->nodes[i].op == TSR_OP_CHOOSE_EXPERTS;
}

bool tsr_executable_take_nan_scores(tsr_executable *b, tsr_nan_scores *ret) {
  const uint64_t mask = ((uint64_t)1 << TSR_NAN_BITS) - 1;
  if (!b->chooses_experts) return false;
  uint64_t here = b->nan_scores, of_device = TSR_NAN_NOWHERE;
  const tsr_device *d = b->process->device;
  if (d->take_nan_scores) of_device = d->take_nan_scores(d->state);
  uint64_t place = tsr_executable_agree_least(b, here < of_device ? here : of_device);
  b->nan_scores = TSR_NAN_NOWHERE;
  *ret = (tsr_nan_scores){
      .node = (int)(place >> 2 * TSR_NAN_BITS),
      .microbatch = (int64_t)(place >> TSR_NAN_BITS & mask),
      .rank = (int)(place & mask)};
  return place != TSR_NAN_NOWHERE;
}
