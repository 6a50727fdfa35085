// SPDX-License-Identifier: Apache-2.0
/* What collectives between ranks on one device are made of. */
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/number.cuh"
#include "kernels/cuda/reduction_tree.cuh"
#include <assert.h>

typedef struct {
  const void *in[TSR_CUDA_MEMBERS_MAX];
  void *out[TSR_CUDA_MEMBERS_MAX];
  uint8_t merges[TSR_CUDA_MEMBERS_MAX];
  int members, outs;
  bool onto;
  int64_t part, step, start, n;
} sum_of;

/* One thread an element: all summands are read before any sum is written. In half precision each
 * sum of two is rounded. */
template <typename T> static __global__ void sum_members(const sum_of s) {
  for (int64_t i = map_thread(); i < s.n; i += map_threads()) {
    int64_t at = i / s.part * s.step + s.start + i % s.part;
    T stack[TSR_TREE_DEPTH_MAX];
    tsr_tree_stack tree = {};
    if (s.onto) stack[tsr_tree_push(&tree, 0)] = ((const T *)s.out[0])[i];
    for (int m = 0; m < s.members; m++) {
      stack[tsr_tree_push(&tree, s.merges[m])] = ((const T *)s.in[m])[at];
      for (int low; tsr_tree_merge(&tree, &low);)
        number_store(&stack[low], number_load(&stack[low]) + number_load(&stack[low + 1]));
    }
    for (int k = 0; k < s.outs; k++) ((T *)s.out[k])[i] = stack[0];
  }
}

static tsr_cuda_type cuda_type_of(tsr_members_sum_type type) {
  return type == TSR_SUM_BF16 ? TSR_CUDA_BF16 : type == TSR_SUM_F16 ? TSR_CUDA_F16 : TSR_CUDA_F32;
}

extern "C" void tsr_cuda_sum_members(tsr_cuda_stream s, const tsr_members_sum *sum) {
  sum_of of;
  assert(sum->members <= TSR_CUDA_MEMBERS_MAX && sum->outs <= TSR_CUDA_MEMBERS_MAX);
  for (int m = 0; m < sum->members; m++) of.in[m] = sum->in[m], of.merges[m] = sum->merges[m];
  for (int k = 0; k < sum->outs; k++) of.out[k] = sum->out[k];
  of.members = sum->members, of.outs = sum->outs, of.onto = sum->onto;
  of.part = sum->part, of.step = sum->step, of.start = sum->start, of.n = sum->outer * sum->part;
  if (of.n)
    TSR_BY_TYPE(cuda_type_of(sum->type), T, TSR_LAUNCH(sum_members<T>, launch_map(of.n), s, of))
}
