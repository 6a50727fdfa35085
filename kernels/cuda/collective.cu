// SPDX-License-Identifier: Apache-2.0
/* What collectives between ranks on one device are made of. */
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/reduction_tree.cuh"
#include <assert.h>

typedef struct {
  const float *in[TSR_CUDA_MEMBERS_MAX];
  float *out[TSR_CUDA_MEMBERS_MAX];
  uint8_t merges[TSR_CUDA_MEMBERS_MAX];
  int members, outs;
  bool onto;
  int64_t part, step, start, n;
} sum_of;

/* One thread an element: all summands are read before any sum is written. */
static __global__ void sum_members(const sum_of s) {
  for (int64_t i = map_thread(); i < s.n; i += map_threads()) {
    int64_t at = i / s.part * s.step + s.start + i % s.part;
    float stack[TSR_TREE_DEPTH_MAX];
    tsr_tree_stack tree = {};
    if (s.onto) stack[tsr_tree_push(&tree, 0)] = s.out[0][i];
    for (int m = 0; m < s.members; m++) {
      stack[tsr_tree_push(&tree, s.merges[m])] = s.in[m][at];
      for (int low; tsr_tree_merge(&tree, &low);) stack[low] += stack[low + 1];
    }
    for (int k = 0; k < s.outs; k++) s.out[k][i] = stack[0];
  }
}

extern "C" void tsr_cuda_sum_members(
    tsr_cuda_stream s, float *const *out, int outs, bool onto, const float *const *in, int members,
    const uint8_t *merges, int64_t outer, int64_t part, int64_t step, int64_t start) {
  sum_of of;
  assert(members <= TSR_CUDA_MEMBERS_MAX && outs <= TSR_CUDA_MEMBERS_MAX);
  for (int m = 0; m < members; m++) of.in[m] = in[m], of.merges[m] = merges[m];
  for (int k = 0; k < outs; k++) of.out[k] = out[k];
  of.members = members, of.outs = outs, of.onto = onto;
  of.part = part, of.step = step, of.start = start, of.n = outer * part;
  if (of.n) TSR_LAUNCH(sum_members, launch_map(of.n), s, of);
}
