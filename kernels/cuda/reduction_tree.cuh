// SPDX-License-Identifier: Apache-2.0
/* base/reduction_tree.h's tree on the device. */
#ifndef TSR_KERNELS_CUDA_TREE_CUH
#define TSR_KERNELS_CUDA_TREE_CUH
#include "base/reduction_tree.h"
#include <stdbool.h>
#include <stdint.h>

/* x[0] becomes the sum of x[i*stride], i < n, by the tree; the others are used up. n > 0. All
 * threads of the block come here with the same n, and `processes` of them work on one sum, each
 * with its number; a number of n or more does nothing.
 *
 * Within a run of `odd` entries the stack machine's merges are those of neighbours, level by level,
 * where one that is left over waits for the next level; then runs are merged as neighbours. */
template <typename T>
static __device__ inline void
tree_sum(T *x, int64_t n, int64_t stride, int64_t process, int64_t processes) {
  int64_t odd = tsr_tree_odd(n), runs = n / odd;
  for (int64_t step = 1; step < odd; step *= 2) {
    int64_t pairs = (odd + step - 1) / (2 * step);
    for (int64_t p = process; p < pairs * runs; p += processes) {
      int64_t i = p / pairs * odd + p % pairs * 2 * step;
      x[i * stride] += x[(i + step) * stride];
    }
    __syncthreads();
  }
  for (int64_t step = odd; step < n; step *= 2) {
    for (int64_t p = process; p < n / (2 * step); p += processes)
      x[p * 2 * step * stride] += x[(p * 2 + 1) * step * stride];
    __syncthreads();
  }
}

#endif
