// SPDX-License-Identifier: Apache-2.0
/* Which tile of a GEMM's result a block computes. */
#ifndef TSR_KERNELS_CUDA_TILE_ORDER_CUH
#define TSR_KERNELS_CUDA_TILE_ORDER_CUH
#include "kernels/cuda/launch.cuh"

static __device__ inline int64_t tiles_of(int64_t n, int64_t tile) { return (n + tile - 1) / tile; }

/* Counted in tiles. */
typedef struct {
  int64_t row, column;
} tile_index;

/* Neighbours of blocks are tiles of up to 8 rows of tiles, so that they find each other's operands
 * in the cache. */
static __device__ inline tile_index tile_of_block(int64_t rows, int64_t columns) {
  const int64_t group = 8;
  int64_t first = blockIdx.x / (group * columns) * group, in_group = blockIdx.x % (group * columns);
  int64_t here = rows - first < group ? rows - first : group;
  tile_index t = {first + in_group % here, in_group / here};
  return t;
}

#endif
