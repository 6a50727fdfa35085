// SPDX-License-Identifier: Apache-2.0
/* Quantises matrices to FP8 with a scale for each block. */
#include "kernels/cuda/fp8.cuh"
#include "kernels/cuda/fp8_shape.h"
#include "kernels/cuda/launch.cuh"

/* What neighbours have one scale. */
enum fp8_blocks { FP8_ROWS, FP8_COLUMNS, FP8_SQUARES };

/* Where the codes of a tile begin in a row of them, and how many there are with the zeros behind a
 * unit. */
typedef struct {
  int64_t first, count;
} fp8_span;
/* Of elements from `at` of a unit on, whose codes begin at `begin`. */
static __device__ inline fp8_span span_at(int64_t begin, int64_t at, int64_t unit) {
  int64_t left = tsr_cuda_fp8_unit(unit) - at;
  fp8_span s = {begin + at, left < TSR_FP8_BLOCK ? left : TSR_FP8_BLOCK};
  return s;
}
static __device__ inline fp8_span span_of(int64_t first, int64_t unit) {
  return span_at(first / unit * tsr_cuda_fp8_unit(unit), first % unit, unit);
}

/* What a block quantises: a tile of a matrix, which begins at element `x`, code `codes` and scale
 * `scales` of the operand. */
typedef struct {
  tsr_fp8_tile tile;
  fp8_span k;
  int64_t x, codes, scales;
} fp8_work;

/* The run of the tile's first row: the last one that does not begin behind it, in blocks. */
static __device__ inline int64_t run_of_block(const tsr_cuda_fp8_operand &o, int64_t block) {
  int64_t begin = 0, end = o.count;
  while (end - begin > 1) {
    int64_t middle = (begin + end) / 2;
    if (tsr_cuda_fp8_run_block(o.starts[middle], middle) <= block) begin = middle;
    else end = middle;
  }
  return begin;
}

static __device__ inline bool work_of_runs(const tsr_cuda_fp8_operand &o, fp8_work *ret) {
  int64_t across = tsr_fp8_blocks(o.layout.cols, o.layout.cols, TSR_FP8_BLOCK);
  int64_t block = blockIdx.x / across, col = blockIdx.x % across * TSR_FP8_BLOCK;
  int64_t run = run_of_block(o, block), first = o.starts[run], rows = o.starts[run + 1] - first;
  int64_t at = (block - tsr_cuda_fp8_run_block(first, run)) * TSR_FP8_BLOCK;
  if (at < 0 || at >= rows) return false;
  fp8_work w = {};
  w.tile.row = first + at, w.tile.col = col;
  w.tile.rows = rows - at < TSR_FP8_BLOCK ? rows - at : TSR_FP8_BLOCK;
  w.tile.cols = o.layout.cols - col < TSR_FP8_BLOCK ? o.layout.cols - col : TSR_FP8_BLOCK;
  w.tile.scale = block * o.layout.cols + col;
  w.k = span_at(tsr_cuda_fp8_run_codes(first, run), at, rows);
  *ret = w;
  return true;
}

/* Whether the block has any. */
static __device__ inline bool find_work(const tsr_cuda_fp8_operand &o, fp8_work *ret) {
  if (tsr_cuda_fp8_sums_runs(&o)) return work_of_runs(o, ret);
  const tsr_fp8_layout &l = o.layout;
  int64_t tiles = tsr_fp8_tiles(&l), matrix = blockIdx.x / tiles;
  fp8_work w = {};
  w.tile = tsr_fp8_tile_at(&l, blockIdx.x % tiles);
  w.k = o.sums_rows ? span_of(w.tile.row, l.unit_rows) : span_of(w.tile.col, l.unit_cols);
  w.x = matrix * l.rows * l.cols;
  w.codes = matrix * tsr_cuda_fp8_operand_codes(&o);
  w.scales = matrix * tsr_cuda_fp8_operand_scales(&o);
  if (o.has_runs) {
    int64_t left = o.starts[o.count] - w.tile.row;
    if (left < w.tile.rows) w.tile.rows = left;
  }
  *ret = w;
  return w.tile.rows > 0;
}

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

/* A row's neighbours are a word of codes. */
template <typename DIVIDE>
static __device__ inline void
write_rows(const tsr_cuda_fp8_operand &o, const fp8_work &w, uint8_t *codes, const DIVIDE &divide) {
  fp8_rounding rounding = fp8_rounding_of(o.layout.format);
  const tsr_fp8_tile &t = w.tile;
  int64_t stride = tsr_cuda_fp8_operand_stride(&o);
  if (part_col() >= w.k.count) return;
#pragma unroll
  for (int r = 0; r < FP8_WARP_ROWS; r++) {
    uint32_t word = 0;
#pragma unroll
    for (int j = 0; j < FP8_THREAD_COLS; j++)
      if (part_col() + j < t.cols) word |= fp8_nearest(rounding, divide(r, j)) << 8 * j;
    uint8_t *to = codes + (t.row + part_row() + r) * stride + w.k.first;
    if (part_row() + r < t.rows) *(uint32_t *)(to + part_col()) = word;
  }
}

/* A column's neighbours are 8 bytes of codes. */
template <typename DIVIDE>
static __device__ inline void write_columns(
    const tsr_cuda_fp8_operand &o, const fp8_work &w, uint8_t *codes, const DIVIDE &divide) {
  fp8_rounding rounding = fp8_rounding_of(o.layout.format);
  const tsr_fp8_tile &t = w.tile;
  int64_t stride = tsr_cuda_fp8_operand_stride(&o);
  if (part_row() >= w.k.count) return;
#pragma unroll
  for (int j = 0; j < FP8_THREAD_COLS; j++) {
    uint32_t words[FP8_WARP_ROWS / 4] = {0};
#pragma unroll
    for (int r = 0; r < FP8_WARP_ROWS; r++)
      if (part_row() + r < t.rows) words[r / 4] |= fp8_nearest(rounding, divide(r, j)) << r % 4 * 8;
    uint2 pack = {words[0], words[1]};
    uint8_t *to = codes + (t.col + part_col() + j) * stride + w.k.first;
    if (part_col() + j < t.cols) *(uint2 *)(to + part_row()) = pack;
  }
}

template <typename T, fp8_blocks BLOCKS, bool SUMS_ROWS>
static __global__ void __launch_bounds__(FP8_WARPS *TSR_WARP)
    fp8_quantize(uint8_t *codes, float *scales, const T *x, tsr_cuda_fp8_operand o, bool packed) {
  const tsr_fp8_layout &l = o.layout;
  const int count = BLOCKS == FP8_ROWS      ? FP8_WARP_ROWS
                    : BLOCKS == FP8_COLUMNS ? FP8_THREAD_COLS
                                            : 1;
  fp8_work w;
  fp8_part p;
  uint32_t most[count];
  float scale[count], inverse[count];
  if (!find_work(o, &w)) return;
  part_load(&p, x + w.x, l.cols, w.tile, packed);
  part_largest<BLOCKS>(p, most);
#pragma unroll
  for (int i = 0; i < count; i++) scale[i] = fp8_scale(l, most[i]), inverse[i] = 1 / scale[i];
  write_scales<BLOCKS>(l, w.tile, scales + w.scales, scale);
  auto divide = [&](int r, int j) {
    int i = BLOCKS == FP8_ROWS ? r : BLOCKS == FP8_COLUMNS ? j : 0;
    return divided(p.x[r][j], scale[i], inverse[i], l.power_of_two);
  };
  if (SUMS_ROWS) write_columns(o, w, codes + w.codes, divide);
  else write_rows(o, w, codes + w.codes, divide);
}

template <typename T>
static void quantize(
    tsr_cuda_stream s, uint8_t *codes, float *scales, const T *x, const tsr_cuda_fp8_operand *o) {
  const tsr_fp8_layout *l = &o->layout;
  tsr_launch_shape shape = launch_fp8_quantize(o);
  bool square = l->block_rows == l->block_cols;
  bool packed = l->cols % FP8_THREAD_COLS == 0 && l->unit_cols % FP8_THREAD_COLS == 0 &&
                is_aligned(x, FP8_THREAD_COLS * (int)sizeof(T));
  if (square && o->sums_rows)
    TSR_LAUNCH((fp8_quantize<T, FP8_SQUARES, true>), shape, s, codes, scales, x, *o, packed);
  else if (square)
    TSR_LAUNCH((fp8_quantize<T, FP8_SQUARES, false>), shape, s, codes, scales, x, *o, packed);
  else if (o->sums_rows)
    TSR_LAUNCH((fp8_quantize<T, FP8_COLUMNS, true>), shape, s, codes, scales, x, *o, packed);
  else TSR_LAUNCH((fp8_quantize<T, FP8_ROWS, false>), shape, s, codes, scales, x, *o, packed);
}

extern "C" void tsr_cuda_fp8_quantize(
    tsr_cuda_stream s, tsr_cuda_type type, uint8_t *codes, float *scales, const void *x,
    const tsr_cuda_fp8_operand *o) {
  if (o->layout.rows * o->layout.cols * o->count <= 0) return;
  TSR_BY_TYPE(type, T, quantize(s, codes, scales, (const T *)x, o))
}
