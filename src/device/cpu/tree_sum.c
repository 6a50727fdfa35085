// SPDX-License-Identifier: Apache-2.0
/* Sums of reduction units, in the order of the tree. */
#include "device/cpu/ops.h"

void cpu_round_sum(const cpu_call *c, float *x, int64_t begin, int64_t end) {
  enum { BLOCK = 1024 };
  tsr_dtype type = c->call.task->sum.rounds;
  uint16_t half[BLOCK];
  for (int64_t at = begin, n; type != TSR_F32 && at < end; at += n) {
    n = end - at < BLOCK ? end - at : BLOCK;
    cpu_cast_to_half(c->k, type, half, x + at, 0, n);
    cpu_cast_from_half(c->k, type, x + at, half, 0, n);
  }
}

void cpu_add_leaves(
    const cpu_call *c, int64_t block, float *out, float *scratch, int64_t stride, int64_t begin,
    int64_t end, cpu_make_leaf *make, void *context) {
  const tsr_reduction *sum = &c->call.task->sum;
  tsr_tree_stack tree = {0}; /* entry 0 is out */
  for (int64_t leaf = 0; leaf < tsr_reduction_leaves(sum); leaf++) {
    int at = tsr_tree_push(&tree, tsr_reduction_merges(sum, leaf));
    float *made = at ? scratch + (at - 1) * stride : out;
    make(c, context, block, leaf, made);
    cpu_round_sum(c, made, begin, end);
    for (int low; tsr_tree_merge(&tree, &low);) {
      float *upper = scratch + low * stride, *lower = low ? upper - stride : out;
      c->k->add(lower, lower, upper, begin, end);
      cpu_round_sum(c, lower, begin, end);
    }
  }
}
