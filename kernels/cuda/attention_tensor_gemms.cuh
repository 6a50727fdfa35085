// SPDX-License-Identifier: Apache-2.0
/* GEMMs of a warp's 16 * M rows with tensor cores, the same for all passes of attention: tiles lie
 * in shared memory, padded to W columns, sums in registers. */
#ifndef TSR_KERNELS_CUDA_ATTENTION_TENSOR_GEMMS_CUH
#define TSR_KERNELS_CUDA_ATTENTION_TENSOR_GEMMS_CUH
#include "kernels/cuda/mma.cuh"

/* The left operand (16 * M, W): rows of a tile in shared memory, from `row` on, or `HELD`: in
 * registers. */
template <int W, int M, bool HELD> struct tensor_left {
  const uint16_t *tile;
  int row;
  static constexpr bool WIDEST = W == TENSOR_WIDTH_MAX; /* whose addresses would be spilled */
  uint32_t held[HELD ? M : 1][HELD ? W / 16 : 1][4];

  /* The tile is there. */
  __device__ inline tensor_left(const uint16_t *x, int first) : tile(x), row(first) {
    if constexpr (HELD)
#pragma unroll
      for (int m = 0; m < M; m++)
#pragma unroll
        for (int d = 0; d < W / 16; d++) tensor_a<W>(held[m][d], tile, row + 16 * m, 16 * d);
  }
  __device__ inline void columns(uint32_t (&a)[M][4], int d) const {
#pragma unroll
    for (int m = 0; m < M; m++)
      if constexpr (HELD)
        for (int i = 0; i < 4; i++) a[m][i] = held[m][d / 16][i];
      else tensor_a<W>(a[m], tile, (WIDEST ? tensor_here(row) : row) + 16 * m, d);
  }
};

/* sums[m] (16, N) = left's m-th 16 rows . others transposed */
template <tsr_cuda_type TYPE, int W, int M, int N, bool HELD>
static __device__ inline void
dot(float (&sums)[M][N / 8][4], const tensor_left<W, M, HELD> &left, const uint16_t *others) {
#pragma unroll
  for (int m = 0; m < M; m++)
#pragma unroll
    for (int n = 0; n < N / 8; n++)
      for (int i = 0; i < 4; i++) sums[m][n][i] = 0;
#pragma unroll(W == TENSOR_WIDTH_MAX ? 2 : W > 128 ? 4 : W / 16)
  for (int d = 0; d < W; d += 16) {
    uint32_t a[M][4], b[4];
    left.columns(a, d);
#pragma unroll
    for (int n = 0; n < N / 8; n += 2) {
      tensor_b_of_rows<W>(b, others, n * 8, d);
#pragma unroll
      for (int m = 0; m < M; m++) {
        tensor_gemm<TYPE>(sums[m][n], a[m], b);
        tensor_gemm<TYPE>(sums[m][n + 1], a[m], b + 2);
      }
    }
  }
}

/* sums[m] (16, W) += weights[m] (16, N) . others */
template <tsr_cuda_type TYPE, int W, int M, int N>
static __device__ inline void
add(float (&sums)[M][W / 8][4], const float (&weights)[M][N / 8][4], const uint16_t *others) {
#pragma unroll
  for (int k = 0; k < N; k += 16) {
    uint32_t a[M][4], b[4];
#pragma unroll
    for (int m = 0; m < M; m++)
      tensor_a_of_sums<TYPE>(a[m], weights[m][k / 8], weights[m][k / 8 + 1]);
#pragma unroll
    for (int n = 0; n < W / 8; n += 2) {
      tensor_b_of_columns<W>(b, others, k, n * 8);
#pragma unroll
      for (int m = 0; m < M; m++) {
        tensor_gemm<TYPE>(sums[m][n], a[m], b);
        tensor_gemm<TYPE>(sums[m][n + 1], a[m], b + 2);
      }
    }
  }
}

template <int W, int M> static __device__ inline void zero(float (&sums)[M][W / 8][4]) {
#pragma unroll
  for (int m = 0; m < M; m++)
#pragma unroll
    for (int n = 0; n < W / 8; n++)
      for (int i = 0; i < 4; i++) sums[m][n][i] = 0;
}

#endif
