// SPDX-License-Identifier: Apache-2.0
/* Sums of elements to one number, with the bits of the CPU's: in double, by blocks of TSR_SUM_BLOCK
 * elements of the row-major order, of which element i goes to running sum i % 32, a lane's; blocks
 * are added by the tree and the sum is rounded once. */
#ifndef TSR_KERNELS_CUDA_SUMMATION_CUH
#define TSR_KERNELS_CUDA_SUMMATION_CUH
#include "kernels/cuda/block.cuh"
#include "kernels/cuda/reduction_tree.cuh"

/* The sum, or the sum of squares, of a block of x (rows, cols), whose rows are `stride` apart; in
 * all lanes of a warp. */
template <bool SQUARES>
static __device__ inline double
block_elements(const float *x, int64_t block, int64_t rows, int64_t cols, int64_t stride) {
  int64_t n = rows * cols, i = block * TSR_SUM_BLOCK;
  int64_t end = i + TSR_SUM_BLOCK < n ? i + TSR_SUM_BLOCK : n;
  double sum = 0;
  i += threadIdx.x % TSR_WARP;
  if (rows == 1 || stride == cols) {
#pragma unroll 8
    for (; i < end; i += TSR_WARP) sum += SQUARES ? (double)x[i] * (double)x[i] : (double)x[i];
  } else if (i < end) {
    int64_t row = i / cols, col = i % cols;
    for (; i < end; i += TSR_WARP) {
      double v = (double)x[row * stride + col];
      sum += SQUARES ? v * v : v;
      for (col += TSR_WARP; col >= cols; col -= cols) row++;
    }
  }
  return warp_sum(sum);
}

/* The tree over the sums of blocks, by all threads of a block: its levels wait for one another, in
 * shared memory where the sums fit there. blocks > 0; `sums` are used up. */
static __device__ inline void add_block_sums(float *out, double *sums, int64_t blocks) {
  __shared__ double near[LAUNCH_BLOCK_SUMS];
  if (blocks <= LAUNCH_BLOCK_SUMS) {
    for (int64_t i = threadIdx.x; i < blocks; i += blockDim.x) near[i] = sums[i];
    sums = near;
    __syncthreads();
  }
  tree_sum(sums, blocks, 1, (int64_t)threadIdx.x, (int64_t)blockDim.x);
  if (threadIdx.x == 0) *out = (float)sums[0];
}

#endif
