// SPDX-License-Identifier: Apache-2.0
/* Attention without tensor cores: a tile lies in shared memory in f32, padded with zeros to W
 * columns, and 256 threads, 16 x 16, hold the sums of a product.
 *
 * Rows lie W + 4 floats apart: 8 threads that read 4 neighbours in d of 8 neighbouring rows then
 * touch all banks once. Threads of one row are half of a warp. */
#ifndef TSR_KERNELS_CUDA_ATTENTION_SIMT_TILE_CUH
#define TSR_KERNELS_CUDA_ATTENTION_SIMT_TILE_CUH
#include "kernels/cuda/attention.cuh"

static __device__ inline int simt_x(void) { return (int)threadIdx.x % SIMT_SIDE; }
static __device__ inline int simt_y(void) { return (int)threadIdx.x / SIMT_SIDE; }

/* 4 neighbouring floats of shared memory, 16 bytes aligned. */
static __device__ inline void simt_read(const float *from, float x[4]) {
  const float4 v = *(const float4 *)from;
  x[0] = v.x, x[1] = v.y, x[2] = v.z, x[3] = v.w;
}

/* Sums over the threads of one row, in a fixed order. */
static __device__ inline float simt_row_sum(float x) {
  for (int n = SIMT_SIDE / 2; n; n /= 2) x += __shfl_xor_sync(0xffffffffu, x, n);
  return x;
}

static __device__ inline float simt_row_max(float x) {
  for (int n = SIMT_SIDE / 2; n; n /= 2) x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, n));
  return x;
}

/* to (ROWS, W) = the first `rows` rows of `from`, with D columns; the rest are zeros. */
template <typename N, int W, int ROWS>
static __device__ inline void
simt_load(float *to, const N *from, int64_t stride, int64_t rows, int64_t D) {
  bool vectors = D % 4 == 0 && stride % 4 == 0 && (uintptr_t)from % (4 * sizeof(N)) == 0;
  for (int i = (int)threadIdx.x; i < ROWS * (W / 4); i += SIMT_THREADS) {
    int row = i / (W / 4), d = i % (W / 4) * 4;
    float x[4] = {0, 0, 0, 0};
    if (row < rows && d < D) row_load<4>(x, from + row * stride, d, D, vectors);
    *(float4 *)(to + row * (W + SIMT_PAD) + d) = make_float4(x[0], x[1], x[2], x[3]);
  }
}

/* sums[i][j] = a row i*16+y . b row j*16+x, added along d. */
template <int W, int I, int J>
static __device__ inline void
simt_dot(float (&sums)[I][J], const float *a, const float *b, int64_t D) {
  a += simt_y() * (W + SIMT_PAD);
  b += simt_x() * (W + SIMT_PAD);
  for (int i = 0; i < I; i++)
    for (int j = 0; j < J; j++) sums[i][j] = 0;
  for (int d = 0; d < D; d += 4) {
    float x[I][4], y[J][4];
    for (int i = 0; i < I; i++) simt_read(a + i * SIMT_SIDE * (W + SIMT_PAD) + d, x[i]);
    for (int j = 0; j < J; j++) simt_read(b + j * SIMT_SIDE * (W + SIMT_PAD) + d, y[j]);
#pragma unroll
    for (int c = 0; c < 4; c++)
#pragma unroll
      for (int i = 0; i < I; i++)
#pragma unroll
        for (int j = 0; j < J; j++) sums[i][j] = fmaf(x[i][c], y[j][c], sums[i][j]);
  }
}

/* A thread's columns of a sum (rows, W): 4 neighbours from x*4 on, and every 64 columns. */
template <int W> static __device__ inline int simt_column(int c) {
  return simt_x() * 4 + c / 4 * 64 + c % 4;
}

template <int COLUMNS>
static __device__ inline void simt_columns(const float *row, float (&x)[COLUMNS]) {
#pragma unroll
  for (int c = 0; c < COLUMNS; c += 4) simt_read(row + simt_x() * 4 + c / 4 * 64, x + c);
}

/* sums[i] (row i*16+y) += weights (rows, KEYS) . values (KEYS, W), added along the keys. */
template <int W, int KEYS, int I>
static __device__ inline void
simt_weigh(float (&sums)[I][W / 16], const float *weights, const float *values) {
  weights += simt_y() * (KEYS + SIMT_PAD);
  for (int key = 0; key < KEYS; key += 4) {
    float w[I][4];
#pragma unroll
    for (int i = 0; i < I; i++) simt_read(weights + i * SIMT_SIDE * (KEYS + SIMT_PAD) + key, w[i]);
#pragma unroll
    for (int n = 0; n < 4; n++) {
      float x[W / 16];
      simt_columns(values + (key + n) * (W + SIMT_PAD), x);
#pragma unroll
      for (int i = 0; i < I; i++)
#pragma unroll
        for (int c = 0; c < W / 16; c++) sums[i][c] = fmaf(w[i][n], x[c], sums[i][c]);
    }
  }
}

/* sums[i] (row y*I+i) += weights (QUERIES, KEYS)^T rows (QUERIES, W), along the queries. */
template <int W, int QUERIES, int KEYS, int I>
static __device__ inline void
simt_spread(float (&sums)[I][W / 16], const float *weights, const float *rows) {
  weights += simt_y() * I;
#pragma unroll 4
  for (int query = 0; query < QUERIES; query++) {
    float w[I], x[W / 16];
#pragma unroll
    for (int i = 0; i < I; i++) w[i] = weights[query * (KEYS + SIMT_PAD) + i];
    simt_columns(rows + query * (W + SIMT_PAD), x);
#pragma unroll
    for (int i = 0; i < I; i++)
#pragma unroll
      for (int c = 0; c < W / 16; c++) sums[i][c] = fmaf(w[i], x[c], sums[i][c]);
  }
}

/* A thread's columns of one row, times the factor. */
template <typename N, int W>
static __device__ inline void
simt_store(N *row, const float (&x)[W / 16], float factor, int64_t D) {
  for (int c = 0; c < W / 16; c++) {
    int d = simt_column<W>(c);
    if (d < D) number_store(row + d, x[c] * factor);
  }
}

template <int I, int J> static __device__ inline void simt_zero(float (&sums)[I][J]) {
  for (int i = 0; i < I; i++)
    for (int j = 0; j < J; j++) sums[i][j] = 0;
}

#endif
