// SPDX-License-Identifier: Apache-2.0
/* Sums of reduction units, in the order of the tree. */
#include "device/cpu/ops.h"

void cpu_add_leaves(
    const cpu_call *c, int64_t block, float *out, float *scratch, int64_t stride, int64_t begin,
    int64_t end, cpu_make_leaf *make, void *context) {
  const tsr_reduction *sum = &c->call.task->sum;
  int top = 0; /* stack entries in use; entry 0 is out */
  for (int64_t leaf = 0; leaf < tsr_reduction_leaves(sum); leaf++) {
    make(c, context, block, leaf, top ? scratch + (top - 1) * stride : out);
    top++;
    for (int merges = tsr_reduction_merges(sum, leaf); merges; merges--, top--) {
      float *high = scratch + (top - 2) * stride, *low = top == 2 ? out : high - stride;
      c->k->add(low, low, high, begin, end);
    }
  }
}
