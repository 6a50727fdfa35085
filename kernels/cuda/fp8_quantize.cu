// SPDX-License-Identifier: Apache-2.0
/* Quantises matrices to FP8 with a scale for each block. */
#include "kernels/cuda/fp8.cuh"
#include "kernels/cuda/fp8_shape.h"
#include "kernels/cuda/launch.cuh"

/* What neighbours have one scale. */
enum fp8_blocks { FP8_ROWS, FP8_COLUMNS, FP8_SQUARES };

/* A thread's part of a tile, zeros outside of it. */
typedef struct {
  float x[FP8_WARP_ROWS][FP8_THREAD_COLS];
} fp8_part;

static __device__ inline int part_warp(void) { return (int)threadIdx.x / TSR_WARP; }
static __device__ inline int part_row(void) { return part_warp() * FP8_WARP_ROWS; }
static __device__ inline int part_col(void) {
  return (int)threadIdx.x % TSR_WARP * FP8_THREAD_COLS;
}

template <typename T>
static __device__ inline void
part_load(fp8_part *p, const T *x, int64_t stride, const tsr_fp8_tile &t, bool packed) {
#pragma unroll
  for (int r = 0; r < FP8_WARP_ROWS; r++) {
    int row = part_row() + r;
    const T *from = x + (t.row + row) * stride + t.col;
    row_load(p->x[r], from, part_col(), row < t.rows ? t.cols : 0, packed);
  }
}

static __device__ inline uint32_t larger(uint32_t a, uint32_t b) { return a > b ? a : b; }
static __device__ inline uint32_t warp_largest(uint32_t x) {
  for (int distance = TSR_WARP / 2; distance; distance /= 2)
    x = larger(x, __shfl_xor_sync(~0u, x, distance));
  return x;
}

/* The largest magnitude of the block of each of the thread's rows, of each of its columns, or of
 * the tile. */
template <fp8_blocks BLOCKS>
static __device__ inline void part_largest(const fp8_part &p, uint32_t *most) {
  __shared__ uint32_t of_warps[FP8_WARPS][TSR_FP8_BLOCK];
  const int count = BLOCKS == FP8_ROWS      ? FP8_WARP_ROWS
                    : BLOCKS == FP8_COLUMNS ? FP8_THREAD_COLS
                                            : 1;
#pragma unroll
  for (int i = 0; i < count; i++) most[i] = 0;
#pragma unroll
  for (int r = 0; r < FP8_WARP_ROWS; r++)
#pragma unroll
    for (int j = 0; j < FP8_THREAD_COLS; j++) {
      uint32_t *of = most + (BLOCKS == FP8_ROWS ? r : BLOCKS == FP8_COLUMNS ? j : 0);
      *of = larger(*of, fp8_magnitude(p.x[r][j]));
    }
#pragma unroll
  for (int i = 0; i < count; i++) {
    if (BLOCKS != FP8_COLUMNS) most[i] = warp_largest(most[i]);
    if (BLOCKS != FP8_ROWS) of_warps[part_warp()][part_col() + i] = most[i];
  }
  if (BLOCKS == FP8_ROWS) return;
  __syncthreads();
  for (int warp = 0; warp < FP8_WARPS; warp++)
#pragma unroll
    for (int i = 0; i < count; i++) most[i] = larger(most[i], of_warps[warp][part_col() + i]);
}

/* Each scale is written once. */
template <fp8_blocks BLOCKS>
static __device__ inline void
write_scales(const tsr_fp8_layout &l, const tsr_fp8_tile &t, float *scales, const float *scale) {
  float *to = scales + t.scale;
#pragma unroll
  for (int r = 0; BLOCKS == FP8_ROWS && r < FP8_WARP_ROWS; r++)
    if (part_col() == 0 && part_row() + r < t.rows)
      to[(part_row() + r) * tsr_fp8_scale_cols(&l)] = scale[r];
#pragma unroll
  for (int j = 0; BLOCKS == FP8_COLUMNS && j < FP8_THREAD_COLS; j++)
    if (part_row() == 0 && part_col() + j < t.cols) to[part_col() + j] = scale[j];
  if (BLOCKS == FP8_SQUARES && threadIdx.x == 0) *to = *scale;
}

/* x / scale; of a power of two its inverse is exact, and so is what is rounded. */
static __device__ inline float divided(float x, float scale, float inverse, bool power_of_two) {
  return power_of_two ? x * inverse : x / scale;
}

/* Where the codes of a tile begin in a row of them, and how many there are with the zeros behind a
 * unit. */
typedef struct {
  int64_t first, count;
} fp8_span;
static __device__ inline fp8_span span_of(int64_t first, int64_t unit) {
  fp8_span s;
  int64_t at = first % unit, left = tsr_cuda_fp8_unit(unit) - at;
  s.first = first / unit * tsr_cuda_fp8_unit(unit) + at;
  s.count = left < TSR_FP8_BLOCK ? left : TSR_FP8_BLOCK;
  return s;
}

/* A row's neighbours are a word of codes. */
template <typename DIVIDE>
static __device__ inline void
write_rows(const tsr_fp8_layout &l, const tsr_fp8_tile &t, uint8_t *codes, const DIVIDE &divide) {
  fp8_rounding rounding = fp8_rounding_of(l.format);
  fp8_span k = span_of(t.col, l.unit_cols);
  if (part_col() >= k.count) return;
#pragma unroll
  for (int r = 0; r < FP8_WARP_ROWS; r++) {
    uint32_t word = 0;
#pragma unroll
    for (int j = 0; j < FP8_THREAD_COLS; j++)
      if (part_col() + j < t.cols) word |= fp8_nearest(rounding, divide(r, j)) << 8 * j;
    uint8_t *to = codes + (t.row + part_row() + r) * tsr_cuda_fp8_stride(&l, false) + k.first;
    if (part_row() + r < t.rows) *(uint32_t *)(to + part_col()) = word;
  }
}

/* A column's neighbours are 8 bytes of codes. */
template <typename DIVIDE>
static __device__ inline void write_columns(
    const tsr_fp8_layout &l, const tsr_fp8_tile &t, uint8_t *codes, const DIVIDE &divide) {
  fp8_rounding rounding = fp8_rounding_of(l.format);
  fp8_span k = span_of(t.row, l.unit_rows);
  if (part_row() >= k.count) return;
#pragma unroll
  for (int j = 0; j < FP8_THREAD_COLS; j++) {
    uint32_t words[FP8_WARP_ROWS / 4] = {0};
#pragma unroll
    for (int r = 0; r < FP8_WARP_ROWS; r++)
      if (part_row() + r < t.rows) words[r / 4] |= fp8_nearest(rounding, divide(r, j)) << r % 4 * 8;
    uint2 pack = {words[0], words[1]};
    uint8_t *to = codes + (t.col + part_col() + j) * tsr_cuda_fp8_stride(&l, true) + k.first;
    if (part_col() + j < t.cols) *(uint2 *)(to + part_row()) = pack;
  }
}

template <typename T, fp8_blocks BLOCKS, bool SUMS_ROWS>
static __global__ void __launch_bounds__(FP8_WARPS *TSR_WARP)
    fp8_quantize(uint8_t *codes, float *scales, const T *x, tsr_fp8_layout l, bool packed) {
  tsr_fp8_tile t = tsr_fp8_tile_at(&l, blockIdx.x);
  const int count = BLOCKS == FP8_ROWS      ? FP8_WARP_ROWS
                    : BLOCKS == FP8_COLUMNS ? FP8_THREAD_COLS
                                            : 1;
  fp8_part p;
  uint32_t most[count];
  float scale[count], inverse[count];
  part_load(&p, x, l.cols, t, packed);
  part_largest<BLOCKS>(p, most);
#pragma unroll
  for (int i = 0; i < count; i++) scale[i] = fp8_scale(l, most[i]), inverse[i] = 1 / scale[i];
  write_scales<BLOCKS>(l, t, scales, scale);
  auto divide = [&](int r, int j) {
    int i = BLOCKS == FP8_ROWS ? r : BLOCKS == FP8_COLUMNS ? j : 0;
    return divided(p.x[r][j], scale[i], inverse[i], l.power_of_two);
  };
  if (SUMS_ROWS) write_columns(l, t, codes, divide);
  else write_rows(l, t, codes, divide);
}

template <typename T>
static void quantize(
    tsr_cuda_stream s, uint8_t *codes, float *scales, const T *x, const tsr_fp8_layout *l,
    bool sums_rows) {
  tsr_launch_shape shape = launch_fp8_quantize(l);
  bool square = l->block_rows == l->block_cols;
  bool packed = l->cols % FP8_THREAD_COLS == 0 && l->unit_cols % FP8_THREAD_COLS == 0 &&
                is_aligned(x, FP8_THREAD_COLS * (int)sizeof(T));
  if (square && sums_rows)
    TSR_LAUNCH((fp8_quantize<T, FP8_SQUARES, true>), shape, s, codes, scales, x, *l, packed);
  else if (square)
    TSR_LAUNCH((fp8_quantize<T, FP8_SQUARES, false>), shape, s, codes, scales, x, *l, packed);
  else if (sums_rows)
    TSR_LAUNCH((fp8_quantize<T, FP8_COLUMNS, true>), shape, s, codes, scales, x, *l, packed);
  else TSR_LAUNCH((fp8_quantize<T, FP8_ROWS, false>), shape, s, codes, scales, x, *l, packed);
}

extern "C" void tsr_cuda_fp8_quantize(
    tsr_cuda_stream s, tsr_cuda_type type, uint8_t *codes, float *scales, const void *x,
    const tsr_fp8_layout *l, bool sums_rows) {
  if (l->rows * l->cols <= 0) return;
  TSR_BY_TYPE(type, T, quantize(s, codes, scales, (const T *)x, l, sums_rows))
}
