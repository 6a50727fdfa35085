// SPDX-License-Identifier: Apache-2.0
/* Prefix sums of whole numbers by one block, and searches in the plan of experts' rows. */
#ifndef TSR_KERNELS_CUDA_EXPERT_SCAN_CUH
#define TSR_KERNELS_CUDA_EXPERT_SCAN_CUH
#include "kernels/cuda/block.cuh"

/* x[i] becomes the sum of all before it, x[n] the sum of all. All LAUNCH_SCAN_THREADS threads of
 * the block come here; each has a run of numbers. */
static __device__ inline void prefix_sums(int32_t *x, int64_t n) {
  int64_t run = (n + LAUNCH_SCAN_THREADS - 1) / LAUNCH_SCAN_THREADS, i = threadIdx.x * run;
  int64_t end = i + run < n ? i + run : n;
  int32_t sum = 0;
  for (int64_t j = i; j < end; j++) sum += x[j];
  int32_t all, at = block_sum_before(sum, &all);
  for (; i < end; i++) {
    int32_t own = x[i];
    x[i] = at;
    at += own;
  }
  if (threadIdx.x == 0) x[n] = all;
  __syncthreads();
}

/* The first index in [begin, end) of ascending numbers whose number is at least `least`, or end. */
static __device__ inline int64_t
lower_bound(const int32_t *x, int64_t begin, int64_t end, int64_t least) {
  while (begin < end) {
    int64_t middle = (begin + end) / 2;
    if (x[middle] < least) begin = middle + 1;
    else end = middle;
  }
  return begin;
}

/* The first row of the plan (R, 2) whose (expert, slot) is not before this one. */
static __device__ inline int64_t
plan_lower_bound(const int32_t *plan, int64_t R, int64_t expert, int64_t slot) {
  int64_t begin = 0, end = R;
  while (begin < end) {
    int64_t middle = (begin + end) / 2, of = plan[2 * middle + 1];
    bool before = of >= 0 && (of < expert || (of == expert && plan[2 * middle] < slot));
    if (before) begin = middle + 1;
    else end = middle;
  }
  return begin;
}

#endif
