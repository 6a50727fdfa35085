// SPDX-License-Identifier: Apache-2.0
/* Which tile of c a block of experts' GEMMs computes, and what it sums over: the same for halves
 * and codes of FP8 on the tensor cores, and for f32. */
#ifndef TSR_KERNELS_CUDA_EXPERT_GEMM_CUH
#define TSR_KERNELS_CUDA_EXPERT_GEMM_CUH
#include "kernels/cuda/expert_scan.cuh"
#include "kernels/cuda/expert_shape.h"
#include "kernels/cuda/tile_order.cuh"

/* A tile of an expert's c: its first row and column; rows are counted in c (FORWARD, DX), of which
 * `rows` follow, or in c[e]. */
typedef struct {
  int64_t expert, m, n, rows;
} expert_tile;

/* Whether the block has a tile of `tile` rows and `columns`: there are blocks for as many as there
 * can be. */
static __device__ inline bool find_tile(
    const tsr_cuda_expert_gemm &p, int64_t tile, int64_t columns, int64_t row_tiles,
    expert_tile *ret) {
  tile_index at = tile_of_block(row_tiles, tiles_of(p.N, columns));
  expert_tile t = {0, 0, at.column * columns, 0};
  int64_t row = at.row;
  if (p.form == TSR_CUDA_EXPERT_DW) {
    int64_t of_expert = tiles_of(p.M, tile);
    t.expert = row / of_expert;
    t.m = row % of_expert * tile;
    t.rows = p.M - t.m;
  } else {
    if (row >= p.tiles[p.count]) return false;
    t.expert = lower_bound(p.tiles, 0, p.count, row + 1) - 1;
    t.m = p.starts[t.expert] + (row - p.tiles[t.expert]) * tile;
    t.rows = p.starts[t.expert + 1] - t.m;
  }
  *ret = t;
  return true;
}

/* A step of the sum: elements [k, k + depth) up to `end`. */
typedef struct {
  int32_t unit, k, end;
} sum_step;

static __device__ inline bool is_step(const sum_step &s) { return s.k < s.end; }

/* The first step of the sum at or behind this one, which may have none in its unit. */
static __device__ inline void
skip_empty(const tsr_cuda_expert_gemm &p, int64_t expert, sum_step *s) {
  while (s->k >= s->end && s->unit + 1 < p.end_unit) {
    s->unit++;
    s->k = p.starts[expert * p.units + s->unit];
    s->end = p.starts[expert * p.units + s->unit + 1];
  }
}

/* DW: the rows of units one after the other. */
template <tsr_cuda_expert_form FORM>
static __device__ inline sum_step first_step(const tsr_cuda_expert_gemm &p, int64_t expert) {
  sum_step s = {(int32_t)p.first_unit - 1, 0, 0};
  if (FORM == TSR_CUDA_EXPERT_DW) skip_empty(p, expert, &s);
  else s.end = (int32_t)p.K;
  return s;
}
template <tsr_cuda_expert_form FORM>
static __device__ inline sum_step
next_step(const tsr_cuda_expert_gemm &p, int64_t expert, sum_step s, int32_t depth) {
  s.k += depth;
  if (FORM == TSR_CUDA_EXPERT_DW) skip_empty(p, expert, &s);
  return s;
}

/* Calls MACRO(FORM) for p's form. */
#define BY_EXPERT_FORM(p, MACRO)                                                                   \
  switch ((p)->form) {                                                                             \
  case TSR_CUDA_EXPERT_FORWARD:                                                                    \
    MACRO(TSR_CUDA_EXPERT_FORWARD);                                                                \
    break;                                                                                         \
  case TSR_CUDA_EXPERT_DX:                                                                         \
    MACRO(TSR_CUDA_EXPERT_DX);                                                                     \
    break;                                                                                         \
  case TSR_CUDA_EXPERT_DW:                                                                         \
    MACRO(TSR_CUDA_EXPERT_DW);                                                                     \
    break;                                                                                         \
  }

/* expert_gemm_tensor.cu: in bf16 and f16. */
void expert_gemm_tensor(tsr_cuda_stream s, tsr_cuda_type type, const tsr_cuda_expert_gemm *p);

#endif
